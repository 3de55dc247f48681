"""`deputize`: the command line. Only the commands' names are here, so that help loads nothing else."""

from __future__ import annotations

from ...shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it
from . import interrupted

# isort: split

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from ...shared.text import did_you_mean
from . import output
from .errors import open_standard_streams, run_command, tolerate_any_character

COMMANDS = {
    "run": ("run:run", "Hand over one task and wait for its result."),
    "batch": ("batch:batch", "Hand over many tasks from a file."),
    "eval": ("evaluate:evaluate", "Run each task of a file several times, and see how reliable that is."),
    "demo": ("demo:demo", "Watch four delegations at once."),
    "watch": ("watcher:watch", "Follow delegations until they are finished."),
    "show": ("show:show", "Show one delegation: its result, events, steps or patch."),
    "list": ("show:list_", "List delegations, newest first."),
    "cost": ("reports:cost", "Show what delegations cost, by day, model, session or label."),
    "apply": ("apply:apply", "Apply a run's changes to your directory."),
    "merge": ("merge:merge", "Merge the changes of several runs, and check the merged files."),
    "deliver": ("follow_up:deliver", "Push the changes of a run over a git repository as a branch."),
    "pull": ("pull:pull", "Fetch files of a run, such as those that a patch cannot hold."),
    "cancel": ("follow_up:cancel", "Stop delegations."),
    "send": ("follow_up:send", "Send a message to a delegation that is under way."),
    "wrap-up": ("follow_up:wrap_up", "Let a delegation end with a report."),
    "permissions": ("permissions:permissions", "List the calls that wait for a person's permission."),
    "approve": ("permissions:approve", "Approve a call that waits."),
    "deny": ("permissions:deny", "Refuse a call that waits."),
    "continue": ("follow_up:continue_", "Go on with a finished delegation: same conversation, same files."),
    "retry": ("follow_up:retry", "Hand a finished delegation's task over again."),
    "resume": ("follow_up:resume", "Resume interrupted work."),
    "webhooks": ("reports:webhooks", "List notifications of webhooks that have not arrived, or send them again."),
    "schedules": ("schedules:schedules", "List what the service begins at certain times, or pause it."),
    "prune": ("follow_up:prune", "Remove finished delegations and their files."),
    "audit": ("reports:audit", "List the callers that changed something or were refused."),
    "models": ("settings:models", "List the models that the settings name."),
    "tools": ("reports:tools", "List the tools that workers have announced."),
    "workers": ("reports:workers", "List the workers that are alive."),
    "env": ("env:env", "List what is prepared for the commands of runs, prepare it or remove it."),
    "drain": ("operate:drain", "Let workers hand over their runs, and take nothing more."),
    "up": ("stack:up", "Run Redis, workers and the API on this machine."),
    "status": ("operate:status", "Show whether the service runs, its workers, and how much waits."),
    "open": ("operate:open_", "Open the web page, logged in."),
    "logs": ("operate:logs", "Show the logs of this machine's stack."),
    "stop": ("operate:stop", "Stop this machine's stack."),
    "serve": ("stack:serve", "Run the API alone."),
    "worker": ("stack:worker", "Run one worker alone."),
    "mcp": ("mcp:mcp", "Serve delegations as tools to an MCP client, over stdio."),
    "policy": ("policy:policy", "Explain the policy's decision about a call, or test its rules."),
    "prove": ("prove:prove", "Repeat the checks of a proof on this machine, without a service."),
    "keys": ("keys:keys", "Make and list the keys that sign proofs of verified results."),
    "token": ("settings:token", "Print the token of this machine's stack, or make further ones."),
    "settings": ("settings:settings", "List the settings, their defaults and the values in force."),
    "doctor": ("doctor:doctor", "Check this machine and the service, with a remedy for each problem."),
    "version": ("operate:version", "Print the version here, of the service and of its workers."),
}
"""Command name: its module and function, and its line in the help. A new command is one line here."""


_USUAL = {
    **dict.fromkeys(
        ("ps", "ls", "info", "top"),
        "`deputize status` shows the service, `deputize list` delegations, `deputize workers` the workers",
    ),
    **dict.fromkeys(
        ("down", "kill", "shutdown", "quit"), "`deputize stop` ends the service, `deputize cancel` delegations"
    ),
    "restart": "`deputize stop`, then `deputize up --detach`",
    **dict.fromkeys(("start", "init"), "`deputize up` starts a service; `deputize run` needs none"),
    **dict.fromkeys(("log", "tail"), "`deputize logs` shows the programs' logs, `deputize watch` what delegations do"),
    "config": "`deputize settings` lists the settings and their values, `deputize doctor` checks them",
    **dict.fromkeys(("check", "health"), "`deputize doctor` checks this machine and the service"),
    **dict.fromkeys(("ui", "web", "page", "dashboard"), "`deputize open` opens the web page"),
    **dict.fromkeys(
        ("diff", "patch"),
        "`deputize show --patch` shows the changes of a run, `deputize apply --check` their effect here",
    ),
    **dict.fromkeys(("inspect", "describe", "get"), "`deputize show` shows a delegation, `deputize list` all of them"),
    **dict.fromkeys(("attach", "follow"), "`deputize watch` follows delegations"),
    **dict.fromkeys(("exec", "submit", "delegate"), "`deputize run` hands a task over"),
    **dict.fromkeys(("rm", "delete", "clean"), "`deputize prune` removes finished delegations and their files"),
    **dict.fromkeys(("login", "auth"), "`deputize token` prints the token, or makes further ones"),
    "redeliver": "`deputize webhooks redeliver` sends notifications again",
    "trust": "files that only lie in a directory are not used any more; name a deputize.toml with --config",
}
"""What the usual words of other tools, and words of our subcommands, are called here."""


class Commands(click.Group):
    """Loads a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        return getattr(importlib.import_module(f"deputize.orchestrator.cli.{module}"), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            named = [each for each in args[1:] if not each.startswith("-")]
            return self.resolve_command(ctx, [named[0], "--help"]) if named else (name, _HELP, [])
        if name not in COMMANDS and not name.startswith("-"):
            hint = (
                _USUAL.get(name)
                or did_you_mean(name[:100], COMMANDS, 1, cutoff=0.6)
                or f"there are {', '.join(COMMANDS)}"
            )
            raise click.UsageError(f"No such command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Runs one command and exits with its exit code."""
        sys.exit(run_command(partial(self._run, *args, **extra)))

    def _run(self, *args: Any, **extra: Any) -> Any:
        open_standard_streams()
        tolerate_any_character()
        return super().main(*args, **extra | {"standalone_mode": False})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for given in args:
            if any("\ud800" <= char <= "\udfff" for char in given):
                raise click.UsageError(f"{given!r} is not valid UTF-8", ctx)
        return super().parse_args(ctx, args)


_HELP = click.Command("help", callback=lambda: output.block(click.get_current_context().find_root().get_help()))
"""`deputize help`; with a command's name it is that command's ``--help``."""


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", type=click.Path(path_type=Path), help="Read settings from this deputize.toml.")
@click.version_option(None, "-V", "--version", package_name="deputize", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config: Path | None) -> None:
    """Delegate tasks to tool agents that run in parallel on a pool of workers.

    Without DEPUTIZE_URL the stack on this machine is used; where there is none, a command starts what it needs.
    """
    ctx.obj = config


def main() -> None:
    cli(prog_name="deputize")


interrupted.imported()
