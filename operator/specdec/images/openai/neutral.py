"""Keys that are accepted with the values that change nothing, and refused by name with others.

Clients and benchmarks send them by default. `docs/openai.md` has the whole table of keys.
"""

from typing import Any

Table = dict[str, tuple[tuple[Any, ...], str]]
_FORM = "this endpoint does not restrict the form of answers"
# By key: the values that change nothing, and why others are refused. null changes nothing.
_BOTH: Table = {
    "bad_words": (([],), "this server forbids no texts"),
    "detokenize": ((True,), "answers are text"),
    "early_stopping": ((False,), "this server has no beam search"),
    "guided_choice": (([],), _FORM),
    "guided_grammar": ((), _FORM),
    "guided_json": ((), _FORM),
    "guided_regex": ((), _FORM),
    "include_stop_str_in_output": ((False,), "answers end before a stop string"),
    "length_penalty": ((1,), "this server has no beam search"),
    "logit_bias": (({},), "this server has no biases by token id"),
    "logits_processors": (([],), "this server runs no code of requests"),
    "min_p": ((0,), "this server does not sample by min_p; use top_p"),
    "priority": ((0,), "this server serves requests in their order"),
    "prompt_logprobs": ((0,), "this server has no log probabilities of prompts"),
    "return_token_ids": ((False,), "answers are text"),
    "return_tokens_as_token_ids": ((False,), "answers are text"),
    "skip_special_tokens": ((True,), "answers have no special tokens"),
    "spaces_between_special_tokens": ((True, False), "answers have no special tokens"),
    "stop_token_ids": (([],), "this server ends answers at texts; use stop"),
    "structured_outputs": (({},), _FORM),
    "truncate_prompt_tokens": ((-1,), "this server cuts no prompts"),
    "use_beam_search": ((False,), "this server has no beam search"),
}
_COMPLETION: Table = {
    "add_special_tokens": ((True,), "the tokenizer begins each prompt in its own way"),
    "best_of": ((1,), "this server gives one answer"),
    "suffix": (("",), "this model continues text"),
    "response_format": (({"type": "text"},), f"{_FORM}; set type to text"),
}
_CHAT: Table = {
    "add_generation_prompt": ((True,), "each answer is a new message of the assistant"),
    "add_special_tokens": ((False,), "the chat template writes special tokens"),
    "audio": ((), "answers are text"),
    "chat_template": ((), "a template is code; configure one for the service"),
    "continue_final_message": ((False,), "each answer is a new message of the assistant"),
    "documents": (([],), "this endpoint passes no documents to the template"),
    "echo": ((False,), "answers are new text alone"),
    "function_call": (("none", "auto"), "it is deprecated; use tool_choice"),
    "functions": (([],), "they are deprecated; use tools"),
    "mm_processor_kwargs": (({},), "this model reads text"),
    "modalities": ((["text"],), "answers are text"),
    "prediction": ((), "the draft of this service predicts the answer"),
    "response_format": (({"type": "text"},), f"{_FORM}; set type to text"),
    "web_search_options": ((), "this server searches nothing"),
}
COMPLETION, CHAT = _BOTH | _COMPLETION, _BOTH | _CHAT
