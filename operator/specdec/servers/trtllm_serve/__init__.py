"""`trtllm-serve`, which has the OpenAI API, behind a proxy in the same pod."""
