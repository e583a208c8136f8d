"""Reference: FastAPI with our body model and our response model, and nothing in between."""

from fastapi import FastAPI

from service.api.schemas import PredictReply
from service.parsing.schemas import PredictFields

app = FastAPI()


@app.get("/livez")
async def livez() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/predict")
async def predict(body: PredictFields) -> PredictReply:  # noqa: ARG001
    return PredictReply(
        probability=0.031415926535897934, model="default", revision="0123abcd-1-123456-0123abcd"
    )
