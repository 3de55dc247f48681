"""``write_todos``: the todo list, always written as a whole."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

from pydantic import Field, field_validator

from ..text.output import TodoItem, TodoList, TodoStatus
from ..threads import run_in_thread
from .base import Availability, Effect, Kind, Params, Tool, ToolContext, ToolResult

FILE = "todos.json"
MAX_TODOS = 100


class Todo(Params):
    description: str = Field(min_length=1, max_length=500, description="What is to be done, in one line.")
    status: TodoStatus = Field(description="How it stands.")

    @field_validator("description")
    @classmethod
    def _not_blank(cls, description: str) -> str:
        if not any(character.isprintable() and not character.isspace() for character in description):
            raise ValueError("it is blank; write what to do")
        return description


class WriteTodosParams(Params):
    todos: list[Todo] = Field(
        max_length=MAX_TODOS, description="The whole list, in the order of work. It replaces the one before."
    )

    @field_validator("todos")
    @classmethod
    def _one_at_a_time(cls, todos: list[Todo]) -> list[Todo]:
        under_way = [number for number, todo in enumerate(todos, 1) if todo.status == "in_progress"]
        if len(under_way) > 1:
            numbers = ", ".join(map(str, under_way))
            raise ValueError(f"{numbers} are all in_progress; at most one may be, set the others to pending")
        return todos


class WriteTodos(Tool[WriteTodosParams]):
    """Writes the todo list of this piece of work: it replaces the whole list, and the answer shows it.

    For work of three or more steps; simple work needs none. Write it before you begin, set one todo to in_progress
    when you take it up, and write the list again as soon as one is completed, is no longer needed (cancelled) or
    a new one turns up. Send every todo every time. At most one is in_progress.
    """

    name = "write_todos"
    availability = Availability("enable_todos")
    kind = Kind.THINK
    effect = Effect.IDEMPOTENT
    aliases = ("todo_write", "update_todos", "TodoWrite", "todowrite")
    params = WriteTodosParams

    def title(self, params: WriteTodosParams) -> str:
        if not params.todos:
            return "clear the todo list"
        count = Counter(todo.status for todo in params.todos)
        return f"todo list: {count['completed']} of {len(params.todos)} done"

    async def run(self, ctx: ToolContext, params: WriteTodosParams) -> ToolResult:
        todos = TodoList(tuple(TodoItem(" ".join(todo.description.split()), todo.status) for todo in params.todos))
        kept = json.dumps([asdict(item) for item in todos.items], indent=2, ensure_ascii=False)
        await run_in_thread(ctx.files.write_private, FILE, kept.encode())
        count = Counter(item.status for item in todos.items)
        text = f"The todo list now ([x] completed, [>] in_progress, [ ] pending, [-] cancelled):\n{todos}"
        text = text if todos.items else "The todo list is empty now."
        return ToolResult(text, self.title(params), display=todos, metadata={"total": len(todos.items), **count})
