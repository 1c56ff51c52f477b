"""Asks an OpenAI endpoint by LangChain, whole and in streams: URL, MODEL, PROMPT, LENGTH, KINDS.

KINDS is `text`, or `chat,text` where the model has a template.
"""

import json
import sys

from langchain_openai import ChatOpenAI, OpenAI

url, model, prompt, length, kinds = sys.argv[1:]
fields = {
    "base_url": url,
    "api_key": "none",
    "model": model,
    "temperature": 0,
    "max_retries": 0,
    "max_tokens": int(length),
}
chat, text = ChatOpenAI(**fields, stream_usage=True), OpenAI(**fields)
result = {
    "text": text.invoke(f"{prompt}\n"),
    "text stream": "".join(text.stream(f"{prompt}\n")),
}
if "chat" in kinds:
    whole, parts = chat.invoke(prompt), list(chat.stream(prompt))
    result |= {
        "chat": whole.content,
        "chat stream": "".join(part.content for part in parts),
        "tokens": whole.usage_metadata["output_tokens"],
        "stream tokens": sum(
            (part.usage_metadata or {}).get("output_tokens", 0) for part in parts
        ),
        "batch": [answer.content for answer in chat.batch([prompt, prompt])],
    }
json.dump(result, sys.stdout)
