import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";
declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });
const features: components["schemas"]["Features"] = { ad: "a17", hour: 14, tags: ["sport", "video"] };

async function main() {
  const one = await client.POST("/predict", { body: { features, id: "request-1" } });
  const many = await client.POST("/predict", {
    body: { instances: [{ features, id: "a17" }, { features, id: "b4" }] },
  });
  const learned = await client.POST("/update", { body: { features, label: 1 } });
  const explained = await client.POST("/explain", { body: { features } });
  const nowhere = await client.POST("/models/{name}/predict", {
    params: { path: { name: "no-such-model" } },
    body: { features },
  });
  if (!one.data || !("probability" in one.data)) throw new Error("no prediction");
  if (!many.data || !("predictions" in many.data)) throw new Error("no predictions");
  if (!learned.data || !("status" in learned.data)) throw new Error("not learned");
  if (!explained.data || !nowhere.error) throw new Error("no explanation, or no error");
  console.log(JSON.stringify({
    probability: one.data.probability,
    ids: many.data.predictions.map((prediction) => prediction.id),
    status: learned.data.status,
    names: explained.data.features.map((feature) => feature.name),
    code: nowhere.error.code,
  }));
}

await main();
