"""Requests to vLLM's own server, which has the OpenAI API."""

from specdec.servers.openai_api import OPENAI

REQUESTS = OPENAI
