// Calls of the service, which answer with {ok, status, content, detail}; status 0 where it did not answer.
export async function call(path, options = {}) {
  try {
    const reply = await fetch(path, { cache: "no-store", ...options });
    const content = await reply.json().catch(() => ({}));
    return { ok: reply.ok, status: reply.status, content, detail: content.detail ?? reply.statusText };
  } catch {
    return { ok: false, status: 0, content: {}, detail: "The service does not answer." };
  }
}

// The body is JSON text.
export const post = (path, body) => call(path, { method: "POST", headers: { "content-type": "application/json" }, body });

export const ofModel = (model, rest = "") => `models/${encodeURIComponent(model)}${rest}`;
