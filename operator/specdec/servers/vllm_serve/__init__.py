"""vLLM's own server, which has the OpenAI API, behind a proxy in the same pod."""
