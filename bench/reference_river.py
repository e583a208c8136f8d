"""Reference: River's FTRL-Proximal over hashed features behind FastAPI, one process, all in memory.

The same requests as ours, answered the way one would write this with the two libraries. It is given every
advantage that does not change its answers: handlers run on the event loop and not in threads, its body
models are lighter than ours, /update learns without predicting first, and nothing is durable.
"""

from fastapi import FastAPI
from pydantic import BaseModel
from river.linear_model import LogisticRegression
from river.optim import FTRLProximal
from river.preprocessing import FeatureHasher

Features = dict[str, str | float]


class Instance(BaseModel):
    features: Features


class Instances(BaseModel):
    instances: list[Instance]


class Example(Instance):
    label: int


class Examples(BaseModel):
    examples: list[Example]


class Prediction(BaseModel):
    probability: float


class Predictions(BaseModel):
    predictions: list[Prediction]


class Learned(BaseModel):
    status: str = "learned"


class Results(BaseModel):
    results: list[Learned]


app = FastAPI()
model = FeatureHasher(2**22, seed=1) | LogisticRegression(FTRLProximal(alpha=0.1, beta=1.0, l1=0.5, l2=0.0))


@app.get("/livez")
async def livez() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/predict")
async def predict(body: Instances) -> Predictions:
    predictions = [model.predict_proba_one(i.features)[True] for i in body.instances]
    return Predictions(predictions=[Prediction(probability=p) for p in predictions])


@app.post("/update")
async def update(body: Example) -> Learned:
    model.learn_one(body.features, bool(body.label))
    return Learned()


@app.post("/update-batch")
async def update_batch(body: Examples) -> Results:
    for example in body.examples:
        model.learn_one(example.features, bool(example.label))
    return Results(results=[Learned() for _ in body.examples])
