"""The proxy in front of a server with an OpenAI API of its own, such as `trtllm-serve`.

It passes on the operations that clients may use, and nothing else of the server is reachable. It
checks what the server would follow to other machines or files, limits requests, and names the
model as the resource does.
"""
