"""The OpenAI endpoint of a serving pod: `python -m specdec.images.openai`.

It accepts requests of the OpenAI API, and sends them over gRPC to the Triton server of the same
pod. `request` and `chat` parse requests, `assembly` and `answer` build answers, all without I/O.
`triton` is the client of the server, `app` the routes, and `http` the limits of connections.
"""
