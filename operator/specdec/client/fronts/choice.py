"""Select the front end of a model by the inputs that it declares."""

from specdec.client.errors import BadRequestError
from specdec.client.fronts import llm_api, openai
from specdec.client.fronts.llm_api import LlmApi
from specdec.client.fronts.openai import OpenAIFront
from specdec.client.fronts.protocol import Front
from specdec.client.fronts.text_model import TextModel
from specdec.client.transport import Model


def front(model: Model, name: str, url: str) -> Front:
    """The front end of a model.

    Raises:
        BadRequestError: the model takes no text.
    """
    if openai.PROMPT in model.inputs:
        return OpenAIFront(model)
    if "text_input" not in model.inputs:
        raise BadRequestError(
            f"model {name} at {url} has no input text_input; name a model that takes text"
        )
    return LlmApi(model) if llm_api.MAX_TOKENS in model.inputs else TextModel(model)
