// One connection to a model's live figures, made again whenever it is lost.
//
// fetch and not EventSource, which reports neither why a stream was refused nor that no more events arrive.
const SILENCE_MS = 6000;
const PAUSES_MS = [500, 1000, 2000, 3000];

export function follow(model, { onEvent, onState }) {
  let closed = false;
  let attempts = 0;
  let request = null;
  let timer = null;

  async function connect() {
    request = new AbortController();
    const state = await read(model, request, (kind, content) => {
      attempts = 0;
      if (!closed) onEvent(kind, content);
    });
    if (closed) return;
    onState(state);
    timer = setTimeout(connect, PAUSES_MS[Math.min(attempts++, PAUSES_MS.length - 1)]);
  }

  connect();
  return () => {
    closed = true;
    clearTimeout(timer);
    request?.abort();
  };
}

// Why it ended: {kind: "lost" | "refused" | "gone", status?, detail?}
async function read(model, request, onEvent) {
  let gone = null;
  let silence = null;
  const awake = () => {
    clearTimeout(silence);
    silence = setTimeout(() => request.abort(), SILENCE_MS);
  };
  awake();
  try {
    const reply = await fetch(`models/${encodeURIComponent(model)}/live`, {
      headers: { accept: "text/event-stream" },
      cache: "no-store",
      signal: request.signal,
    });
    if (!reply.ok) {
      return { kind: reply.status === 404 ? "gone" : "refused", status: reply.status, detail: await reason(reply) };
    }
    for await (const [kind, content] of events(reply.body, awake)) {
      if (kind === "gone") gone = { kind, detail: content.detail };
      else onEvent(kind, content);
    }
  } catch {
    // The network, or our own abort after silence: both are a lost connection.
  } finally {
    clearTimeout(silence);
  }
  return gone ?? { kind: "lost" };
}

async function reason(reply) {
  try {
    return (await reply.json()).detail;
  } catch {
    return reply.statusText;
  }
}

async function* events(body, awake) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    awake();
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      if (fields.data) yield [fields.event ?? "message", JSON.parse(fields.data)];
    }
  }
}
