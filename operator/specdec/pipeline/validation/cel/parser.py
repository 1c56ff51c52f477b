"""Read an expression into its syntax tree."""

from specdec.pipeline.validation.cel import functions
from specdec.pipeline.validation.cel.lexer import Token, text_value, tokens
from specdec.pipeline.validation.cel.syntax import (
    Access,
    Call,
    Choice,
    Has,
    Items,
    Literal,
    Logic,
    Macro,
    Name,
    Node,
    UnsupportedError,
)

_MACROS = ("all", "exists", "exists_one")
_CONSTANTS = {"true": True, "false": False, "null": None}
# Operators by level, lowest precedence first. The operators of a level group from the left.
_LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)


def parse(expression: str) -> Node:
    """The syntax tree of an expression.

    Raises:
        UnsupportedError: it is not CEL, or needs a function or syntax that this package lacks.
    """
    parser = _Parser(tokens(expression))
    node = parser.choice()
    parser.expect("")
    return node


class _Parser:
    """The tokens of an expression, and how far they are read."""

    def __init__(self, items: list[Token]) -> None:
        self._items = items
        self._position = 0

    def choice(self) -> Node:
        test = self._operation(0)
        if not self._took("?"):
            return test
        yes = self._operation(0)
        self.expect(":")
        return Choice(test, yes, self.choice())

    def expect(self, text: str) -> None:
        token = self._next()
        if token.kind == "text" or token.text != text:
            raise UnsupportedError(f"expected {text or 'the end'!r} and not {token.text!r}")

    def _operation(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._operation(level + 1)
        while (operator := self._operator(level)) is not None:
            right = self._operation(level + 1)
            if operator in ("||", "&&"):
                left = Logic(operator == "||", left, right)
            else:
                left = Call(operator, (left, right))
        return left

    def _operator(self, level: int) -> str | None:
        token = self._items[self._position]
        if token.kind in ("sign", "name") and token.text in _LEVELS[level]:
            return self._next().text
        return None

    def _unary(self) -> Node:
        if self._took("!"):
            return Call("!", (self._unary(),))
        if self._took("-"):
            return Call("negate", (self._unary(),))
        node = self._primary()
        while (after := self._suffix(node)) is not None:
            node = after
        return node

    def _suffix(self, node: Node) -> Node | None:
        """The access or call after a node; None if there is none."""
        for opening in ("[", "[?"):
            if self._took(opening):
                key = self.choice()
                self.expect("]")
                return Access(node, key, opening == "[?")
        if self._took(".?"):
            return Access(node, Literal(self._name()), optional=True)
        if not self._took("."):
            return None
        name = self._name()
        if not self._took("("):
            return Access(node, Literal(name), optional=False)
        if name in _MACROS:
            return self._macro(name, node)
        return self._call(name, self._arguments(node))

    def _macro(self, macro: str, operand: Node) -> Node:
        variable = self._name()
        self.expect(",")
        test = self.choice()
        self.expect(")")
        return Macro(macro, operand, variable, test)

    def _primary(self) -> Node:
        token = self._next()
        if token.kind == "number":
            return Literal(float(token.text) if "." in token.text else int(token.text))
        if token.kind == "text":
            return Literal(text_value(token.text))
        if token.kind == "name":
            return self._named(token.text)
        if token.text == "(":
            node = self.choice()
            self.expect(")")
            return node
        if token.text == "[":
            return Items(self._until("]"))
        raise UnsupportedError(f"unexpected {token.text or 'end'!r}")

    def _named(self, name: str) -> Node:
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name])
        if not self._took("("):
            return Name(name)
        arguments = self._arguments()
        if name != "has":
            return self._call(name, arguments)
        (field,) = arguments if len(arguments) == 1 else (None,)
        if isinstance(field, Access) and not field.optional and isinstance(field.key, Literal):
            return Has(field.operand, str(field.key.value))
        raise UnsupportedError("has() needs a field")

    def _call(self, function: str, arguments: tuple[Node, ...]) -> Node:
        if functions.arity(function) != len(arguments):
            raise UnsupportedError(f"unsupported: {function} of {len(arguments)} arguments")
        return Call(function, arguments)

    def _arguments(self, *first: Node) -> tuple[Node, ...]:
        return (*first, *self._until(")"))

    def _until(self, closing: str) -> tuple[Node, ...]:
        """Expressions up to a closing bracket, with commas between them."""
        items: list[Node] = []
        while not self._took(closing):
            if items:
                self.expect(",")
            items.append(self.choice())
        return tuple(items)

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name" or token.text.startswith("__"):
            raise UnsupportedError(f"expected a name and not {token.text!r}")
        return token.text

    def _took(self, sign: str) -> bool:
        token = self._items[self._position]
        if token.kind != "sign" or token.text != sign:
            return False
        self._position += 1
        return True

    def _next(self) -> Token:
        token = self._items[self._position]
        self._position = min(self._position + 1, len(self._items) - 1)
        return token
