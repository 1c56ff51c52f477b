"""The proxy in front of a server with an OpenAI API of its own.

It passes on the operations that the kind of server names in its module `bodies`, and nothing else
of the server is reachable. It refuses fields by which the server would read files or contact other
machines. It limits requests, and gives the model the name that it has in the resource.
"""
