"""Asks an OpenAI endpoint by LiteLLM, whole and in a stream: URL, MODEL, PROMPT, LENGTH."""

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

url, model, prompt, length = sys.argv[1:]
litellm.telemetry = False
fields = {"api_base": url, "api_key": "none", "temperature": 0, "max_tokens": int(length)}
messages = [{"role": "user", "content": prompt}]


def chat(**more: Any) -> Any:
    return litellm.completion(model=f"openai/{model}", messages=messages, **fields, **more)


def text(**more: Any) -> Any:
    name = f"text-completion-openai/{model}"
    return litellm.text_completion(model=name, prompt=f"{prompt}\n", **fields, **more)


def refusal() -> str:
    try:
        chat(logprobs=True, top_logprobs=1000)
    except litellm.BadRequestError as error:
        return str(error)
    return ""


def joined(parts: list[Any]) -> str:
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


whole, parts = chat(), list(chat(stream=True, stream_options={"include_usage": True}))
json.dump(
    {
        "chat": whole.choices[0].message.content,
        "chat stream": "".join(
            part.choices[0].delta.content or "" for part in parts if part.choices
        ),
        "tokens": whole.usage.completion_tokens,
        "text": text().choices[0].text,
        "text stream": "".join(part.choices[0].text or "" for part in text(stream=True)),
        "refusal": refusal(),
    },
    sys.stdout,
)
