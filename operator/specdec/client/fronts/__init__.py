"""The front ends of a served model: how each takes a request, and how each gives its answer.

`choice.front` selects one by the inputs that the model declares. `protocol` is what they share.
"""
