"""Requests to `trtllm-serve`, which has the OpenAI API."""

from specdec.servers.openai_api import OPENAI

REQUESTS = OPENAI
