"""Every function that reads an untrusted text, of a model or a tool too, and the texts that made such functions slow.

A new public function with a text in one of ``ROOMS``, which are the whole worker and what it reads with, belongs into
``READS``, or with its reason into ``READS_NONE``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from deputize.shared import json_schema, markup, masking, patch_format
from deputize.shared import text as shared_text
from deputize.worker.contracts import Completed
from deputize.worker.mcp import answers
from deputize.worker.models import endings, retry, stream
from deputize.worker.policy import matchers
from deputize.worker.policy.shell import classify_line, executed_text, forbidden, interpreted, plain_line, scripts
from deputize.worker.sandbox.bubblewrap import NoSandbox
from deputize.worker.schemas import arguments, strict_json
from deputize.worker.search import glob_pattern, grep, ripgrep
from deputize.worker.text import (
    diff,
    east_asia,
    edit,
    encodings,
    formats,
    fuzzy,
    merge,
    normalization,
    output,
    printed,
    replacement,
    rewrite,
    textfile,
)
from deputize.worker.text.textfile import TextFile
from deputize.worker.tools import command_hints, params
from deputize.worker.web import fetch, targets
from deputize.worker.workspace.files import Files
from deputize.worker.xml_calls import instruction, parser
from tests.architecture.sources import ROOT
from tests.worker.growing_checks import PATH, READS_OF_CHECKS, half, raw
from tests.worker.growing_elsewhere import HANDED_ON, NOT_OF_RUNS, READS_ELSEWHERE
from tests.worker.growing_foreign import FOREIGN_READS, FOREIGN_ROOMS

ROOMS = (
    "worker",
    *("shared/markup.py", "shared/masking.py", "shared/json_schema.py", "shared/patch_format.py", "shared/text.py"),
    *FOREIGN_ROOMS,
)
MOST = 100_000
Shape = Callable[[int], str]
Reader = Callable[[str], object]


def again(piece: str) -> Shape:
    return lambda size: (piece * (size // len(piece) + 1))[:size]


def numbered(piece: str) -> Shape:
    """The piece with another number each time, so that no cache and no set makes it short."""
    return lambda size: "".join(piece.format(n) for n in range(size // len(piece) + 1))[:size]


_SHORT = r"""[ a( { a[b] a '"' \ / ../ *a * ? ~ ( ) < <a> a: a= $ ` ; & # %"""
SHAPES: Mapping[str, Shape] = {
    **{f"{piece!r} again": again(piece) for piece in ("\n", *_SHORT.split())},
    **{
        f"{piece!r} again": again(piece)
        for piece in ("(rm -rf ", "<<A\n", "(a|a)*", "s[u]d*\n", "é\u2028\u200b", "\U0001f600")
    },
    **{
        f"{piece!r} again": again(piece)
        for piece in ("-a ", ":|:&", "timeout 1 ", "env ", "${a:-", "x |", "f(){", "ab\n", " \n")
    },
    **{
        f"{piece!r} again": again(piece)
        for piece in ("<tool_calls><", "<parameter name='a'>", "<![CDATA[", "]]>", "&amp;")
    },
    **{
        f"{piece!r} again": again(piece)
        for piece in ('{"a":[', "[[1,", '"\\"', "a,", "1|", "data: ", "\x1b[", "\x1b]", "a\r", "a\b")
    },
    **{
        f"{piece!r} again": again(piece)
        for piece in ("http://a:b@", "authorization: ", "-----BEGIN PRIVATE KEY-----\n")
    },
    **{
        f"{piece!r} again": again(piece)
        for piece in (
            "#[test]",
            "[/",
            '\\"',
            "max",
            "thinking ",
            "@@ -1 +1 @@\n-a\n+b\n",
            "diff --git a/a b/a\n",
            "a - ",
            "$1 ",
            "=/dev/",
            "int main(\n",
        )
    },
    **{
        f"{piece!r} counted": numbered(piece)
        for piece in ("rm {} ", "echo a{}|sh|", "git a{} ", "a{}\n", "<a{}>", "f{} |")
    },
    "blanks between": lambda size: "a" + " " * (size - 2) + "b",
    "blanks at the end": lambda size: "a" + " " * (size - 1),
    "a choice": lambda size: "{" + "a," * (size // 2 - 1) + "}",
    "a range": lambda size: "[" + "z-" * (size // 2 - 1) + "]",
    "an awk program": lambda size: "awk '{print " + "$1 " * (size // 3 - 5) + "x'",
    "base64": lambda size: "base64 " + "QUFB" * (size // 4 - 2),
    "open quotes": lambda size: "a '" + "b" * (size - 3),
}
_MASK = masking.SecretMask(["hunter22hunter22", "ababababababababab"])
_PARSER = parser.XMLToolCallParser()
_TOOLS = ["read_file", "write_file", "edit_file"]


def _edited(text: str) -> object:
    """Tries all tolerances, as the old text is nowhere literally."""
    return edit.apply_edit(TextFile(half(text) + "z"), "edit_file", half(text) + " ", "n", every=False)


def _hinted(text: str) -> object:
    done = Completed(1, raw(text), b"", lost=("a",))
    return command_hints.command_hints(Files(Path("/")), NoSandbox(""), text, done, text)


def _refused(text: str) -> object:
    """All that is read of an endpoint's reason, which may repeat what a run has sent."""
    failure = retry.classify_error({"message": text, "code": 500}, "", unknown_passes=False)
    of_request = retry.classify_error({"message": text, "code": 400}, "", unknown_passes=False)
    return failure.is_of_thinking, of_request.is_of_thinking, retry.output_maximum(failure.reason, 9)


READS: Mapping[str, Reader] = {
    "shared/json_schema.py:slow_regex": json_schema.slow_regex,
    "shared/markup.py:harmless": lambda text: markup.harmless(text, _TOOLS),
    "shared/masking.py:SecretMask.json": lambda text: _MASK.json(json.dumps(text)),
    "shared/masking.py:SecretMask.open_end": _MASK.open_end,
    "shared/masking.py:SecretMask.text": _MASK.text,
    "shared/masking.py:partial_credential": masking.partial_credential,
    "shared/masking.py:without_shapes": lambda text: masking.without_shapes(text, "*"),
    "shared/patch_format.py:blob_id": lambda text: patch_format.blob_id(raw(text)),
    "shared/patch_format.py:literal_of": lambda text: patch_format.literal_of([b"literal 9", *raw(text).splitlines()]),
    "shared/patch_format.py:omission": lambda text: patch_format.omission(text[:PATH]),
    "shared/patch_format.py:parse_patch": patch_format.parse_patch,
    "shared/patch_format.py:without": lambda text: patch_format.without(f"diff --git a/a b/a\n{text}", ["a"]),
    "shared/patch_format.py:split_lines": lambda text: patch_format.split_lines(raw(text)),
    "shared/patch_format.py:check_path": lambda text: patch_format.check_path(text[:PATH]),
    "shared/patch_format.py:is_safe": lambda text: patch_format.is_safe(text[:PATH]),
    "shared/patch_format.py:printable_path": lambda text: patch_format.printable_path(text[:PATH]),
    "shared/text.py:clip": lambda text: shared_text.clip(text, 2000),
    "shared/text.py:did_you_mean": lambda text: shared_text.did_you_mean(text, _TOOLS),
    "shared/text.py:safe_cut": lambda text: shared_text.safe_cut(text, len(text) // 2),
    "shared/text.py:shortened": lambda text: shared_text.shortened(text, 2000),
    "shared/text.py:terminal_text": shared_text.terminal_text,
    "shared/text.py:valid": shared_text.valid,
    "shared/text.py:valid_json_unicode": lambda text: shared_text.valid_json_unicode(raw(text)),
    "shared/text.py:visible": shared_text.visible,
    "shared/text.py:visible_block": shared_text.visible_block,
    "shared/text.py:visible_json": shared_text.visible_json,
    "worker/mcp/answers.py:is_excessive": lambda text: answers.is_excessive(raw(text)),
    "worker/mcp/answers.py:messages_in": lambda text: answers.messages_in(raw(text)),
    "worker/mcp/answers.py:read": lambda text: answers.read(raw(text)),
    "worker/mcp/answers.py:readable": lambda text: answers.readable(raw(text)),
    "worker/mcp/answers.py:unattributed": lambda text: answers.unattributed(raw(text)),
    "worker/models/endings.py:imitates_call": lambda text: endings.imitates_call(text, _TOOLS),
    "worker/models/retry.py:classify_error": _refused,
    "worker/models/retry.py:error_in": lambda text: retry.error_in(raw(text)),
    "worker/models/stream.py:EventDecoder.feed": lambda text: [*stream.EventDecoder().feed(raw(text))],
    "worker/mcp/answers.py:EventLines.readable": lambda text: answers.EventLines(1 << 20).readable(raw(text)),
    "worker/policy/matchers.py:real_path": lambda text: matchers.real_path(text[:PATH], Path("/tmp")),
    "worker/policy/shell/__init__.py:classify_line": classify_line,
    "worker/policy/shell/executed_text.py:hidden_in": executed_text.hidden_in,
    "worker/policy/shell/interpreted.py:interpreter_in": interpreted.interpreter_in,
    "worker/policy/shell/interpreted.py:starts_what_it_reads": lambda text: interpreted.starts_what_it_reads(
        "perl", text, []
    ),
    "worker/policy/shell/forbidden.py:decoded_in": forbidden.decoded_in,
    "worker/policy/shell/forbidden.py:Words.hold": lambda text: forbidden.Words.of(text).hold("git"),
    "worker/policy/shell/forbidden.py:Words.of": forbidden.Words.of,
    "worker/policy/shell/forbidden.py:is_device": forbidden.is_device,
    "worker/policy/shell/forbidden.py:removes_root": lambda text: forbidden.removes_root([("rm", *text.split(" "))]),
    "worker/policy/shell/forbidden.py:why_forbidden": lambda text: forbidden.why_forbidden(
        ("rm", "-r", *text.split(" "))
    ),
    "worker/policy/shell/forbidden.py:words_why_forbidden": forbidden.words_why_forbidden,
    "worker/policy/shell/scripts.py:program_in": scripts.program_in,
    "worker/policy/shell/scripts.py:script_of": lambda text: [
        scripts.script_of(name, [text], half(text)) for name in ("awk", "sed")
    ],
    "worker/policy/shell/plain_line.py:commands_of": plain_line.commands_of,
    "worker/schemas/arguments.py:unknown_tool": lambda text: arguments.unknown_tool(text, _TOOLS),
    "worker/search/glob_pattern.py:GlobPattern.__init__": glob_pattern.GlobPattern,
    "worker/search/glob_pattern.py:GlobPattern.at": lambda text: glob_pattern.GlobPattern("**/*a*/**/c").at(
        text[:PATH]
    ),
    "worker/search/glob_pattern.py:GlobPattern.matches": lambda text: glob_pattern.GlobPattern(text[:PATH]).matches(
        "a/b"
    ),
    "worker/search/glob_pattern.py:GlobState.fits": lambda text: (
        glob_pattern.GlobPattern("*a*b*c").at().fits(text[:PATH])
    ),
    "worker/search/glob_pattern.py:GlobState.inside": lambda text: (
        glob_pattern.GlobPattern("*a*/*").at().inside(text[:PATH])
    ),
    "worker/search/glob_pattern.py:expand": glob_pattern.expand,
    "worker/search/ripgrep.py:binary_matches": lambda text: ripgrep.binary_matches(raw(text), "."),
    "worker/search/grep.py:excerpt": lambda text: grep.excerpt(text, len(text) // 2),
    "worker/search/grep.py:parse_hits": lambda text: grep.parse_hits(raw(text)),
    "worker/schemas/strict_json.py:loads": strict_json.loads,
    "worker/schemas/strict_json.py:replace_lone_surrogates": lambda text: strict_json.replace_lone_surrogates(
        text, text
    ),
    "worker/text/diff.py:compare": lambda text: [*diff.compare(text, text[::-1])],
    "worker/text/diff.py:preserve_format": lambda text: diff.preserve_format(TextFile(text), text[::-1]),
    "worker/text/diff.py:unified_diff": lambda text: diff.unified_diff(half(text), half(text[::-1]), "a"),
    "worker/text/edit.py:apply_edit": _edited,
    "worker/text/edit.py:find_placeholder": edit.find_placeholder,
    "worker/text/edit.py:not_found_error": lambda text: edit.not_found_error(TextFile(text), "a", text[1:], "n"),
    "worker/text/edit.py:refuse_placeholder": lambda text: edit.refuse_placeholder("edit_file", text),
    "worker/text/east_asia.py:likely_encoding": lambda text: east_asia.likely_encoding(raw(text)),
    "worker/text/encodings.py:controls_in": lambda text: encodings.controls_in(raw(text)),
    "worker/text/encodings.py:encoding_of": lambda text: encodings.encoding_of(raw(text)),
    "worker/text/encodings.py:kind_of": lambda text: encodings.kind_of(raw(text)),
    "worker/text/encodings.py:other_encoding": lambda text: encodings.other_encoding(raw(text)),
    "worker/text/printed.py:shown_text": lambda text: printed.shown_text(raw(text)),
    "worker/text/formats.py:format_remark": lambda text: formats.format_remark("a.yaml", "{}", text),
    "worker/text/fuzzy.py:is_short": lambda text: fuzzy.is_short(text.split()),
    "worker/text/fuzzy.py:replace_fuzzy": lambda text: fuzzy.replace_fuzzy(TextFile(text), half(text) + "z", "n"),
    "worker/text/fuzzy.py:significant_tokens": fuzzy.significant_tokens,
    "worker/text/merge.py:bracket_balance": merge.bracket_balance,
    "worker/text/merge.py:changes": lambda text: merge.changes(text[:2000], text[1:2000]),
    "worker/text/merge.py:loses_file_text": lambda text: merge.loses_file_text(half(text), text[1:], text[:-9]),
    "worker/text/merge.py:merge_line": lambda text: merge.merge_line(half(text), text[1:], text[:-9]),
    "worker/text/merge.py:split_source": merge.split_source,
    "worker/text/merge.py:split_tokens": merge.split_tokens,
    "worker/text/normalization.py:NormalizedText.__init__": lambda text: normalization.NormalizedText(
        text, normalization.LOOK_ALIKES, normalization.TRAILING_BLANKS, normalization.BLANK_RUNS
    ),
    "worker/text/output.py:few_tokens": lambda text: output.few_tokens(text, 1000),
    "worker/text/output.py:one_line": output.one_line,
    "worker/text/output.py:shorten": lambda text: output.shorten(text, output.OutputLimit()),
    "worker/text/output.py:word_start": lambda text: output.word_start(text, len(text) // 2),
    "worker/text/replacement.py:find_lines": lambda text: replacement.find_lines(TextFile(text), half(text)),
    "worker/text/replacement.py:replace": lambda text: replacement.replace(TextFile(text), text[:3], "n", every=True),
    "worker/text/rewrite.py:line_start": lambda text: rewrite.line_start(text, len(text) // 2),
    "worker/text/rewrite.py:line_stop": lambda text: rewrite.line_stop(text, len(text) // 2),
    "worker/text/rewrite.py:with_line_ends": lambda text: rewrite.with_line_ends(text, "\r\n"),
    "worker/text/textfile.py:TextFile.to_bytes": lambda text: TextFile("").to_bytes(text),
    "worker/text/textfile.py:decode": lambda text: textfile.decode(raw(text), "a"),
    "worker/text/textfile.py:fingerprint": lambda text: textfile.fingerprint(raw(text)),
    "worker/text/textfile.py:number_lines": lambda text: textfile.number_lines(text.split("\n"), 1),
    "worker/text/textfile.py:strip_line_numbers": textfile.strip_line_numbers,
    "worker/tools/command_hints.py:command_hints": _hinted,
    "worker/tools/params.py:refuse_home": params.refuse_home,
    **READS_OF_CHECKS,
    **FOREIGN_READS,
    **READS_ELSEWHERE,
    "worker/web/fetch.py:decode_body": lambda text: fetch.decode_body(raw(text), None, markup=True),
    "worker/web/fetch.py:is_utf8": lambda text: fetch.is_utf8(raw(text), cut=True),
    "worker/web/targets.py:target": lambda text: targets.target(f"http://{text}"),
    "worker/xml_calls/instruction.py:cdata": instruction.cdata,
    "worker/xml_calls/parser.py:XMLToolCallParser.parse_reply": _PARSER.parse_reply,
    "worker/xml_calls/parser.py:XMLToolCallParser.parse_tool_calls": _PARSER.parse_tool_calls,
    "worker/xml_calls/parser.py:coerce": lambda text: parser.coerce(text, frozenset(("array", "object", "number"))),
    "worker/xml_calls/parser.py:find_call_elements": parser.find_call_elements,
    "worker/xml_calls/parser.py:parse_tool_calls": lambda text: parser.parse_tool_calls(text, []),
}

WORST: Mapping[str, str] = {
    "worker/models/base.py:Reply.sendable": "'a' again",
    "worker/models/retry.py:classify_error": "'thinking ' again",
    "worker/verification/sources/broken_scripts.py:broken_script": "'[/' again",
    "worker/verification/canary.py:guarded_rust": "'#[test]' again",
    "worker/verification/sources/failing_scripts.py:failing": "'int main(\\n' again",
    "worker/verification/suspicions/project.py:in_project": "'\\n' again",
}
"""The shape for which a function once took quadratic time; it is always tried."""
_MATCHERS = (
    "of_tool is_named of_kind of_server of_annotations of_argument of_command_prefix prefix_words of_path of_mode "
    "comparison of_depth of_label of_taint of_host"
)
_EXPLAINED = "AbsentTool.__init__ AbsentTool.parse answer Explainer.__init__ Explainer.explain Replay.run"
_OF_ERRORS = "with_full_stop parse_retry_after"
_LISTING = "find_files list_files matching exists_in newest_first folders_matching"
_OF_VERDICTS = """
    sources/broken_sources.py:unnoticed verdict.py:demoted sources/broken_functions.py:Shape.passed rounds.py:returned
    verdict.py:name_without_parameters verdict.py:of_files own_tests.py:own_tests own_tests.py:judged_by_own
    own_tests.py:CodeBefore.__init__ own_tests.py:CodeBefore.is_code protected/command_words.py:is_python
    reports/states.py:Report.add verdict.py:of_canary
"""
_GROUND = "remove_grounds Grounds.__init__ Grounds.folder Grounds.make write content_of"

_OF_OPERATORS = """
    shared/git/command.py:command_line shared/git/own.py:Patience.wait shared/git/own.py:written_by
    worker/mcp/streams.py:guarded worker/sandbox/buffers.py:BoundedBuffer.__init__
    shared/settings/git_credentials.py:Credential.covers shared/settings/git_credentials.py:host_of
"""
_OF_PROGRAMS = """
    shared/git/command.py:git shared/git/command.py:running_git shared/git/pull_requests.py:pull_request
    shared/git/own.py:OwnRepository.records shared/git/own.py:OwnRepository.run shared/git/notes.py:attach_note
    shared/git/delivery.py:objects_over shared/git/delivery.py:patched_tree worker/sandbox/command.py:create_status_file
    worker/sandbox/command.py:read_status_file worker/verification/own_checks.py:CheckedFiles.read
"""

READS_NONE: Mapping[str, Sequence[str]] = {
    "it keeps the text, names something by it, or hands it on": HANDED_ON,
    "an operator wrote it, or this code": (
        *_OF_OPERATORS.split(),
        *("worker/policy/matchers.py:" + name for name in _MATCHERS.split()),
        *("worker/policy/explanation.py:" + name for name in _EXPLAINED.split()),
        *("worker/policy/rule_file.py:checked_taint", "worker/policy/rule_file.py:FileRule.of"),
        *("worker/policy/shell/programs.py:options", "worker/tools/bash.py:Bash.__init__"),
        *("worker/tools/call_subagent.py:CallSubagent.__init__", "worker/tools/skills.py:GetSkill.__init__"),
        *("worker/web/dial.py:GuardedTransport.__init__", "worker/web/egress_proxy.py:EgressProxy.__init__"),
        *("worker/web/search_providers.py:SearchProvider.__init__", "worker/web/targets.py:PrivateHosts.__init__"),
        *("worker/web/targets.py:PrivateHosts.has", "worker/web/targets.py:PrivateHosts.has_port"),
        *("worker/verification/protected/paths.py:" + name for name in ("Globs.__init__", "Protection.__init__")),
        *("shared/masking.py:SecretMask.__init__", "shared/masking.py:SecretMask.add"),
        *("shared/masking.py:search_for_any", "shared/masking.py:search_for_pattern", "shared/text.py:count"),
        *("worker/models/retry.py:Failure.__init__", "worker/models/stream.py:BrokenStream.__init__"),
        *("worker/models/stream.py:ReplyAssembler.__init__", "worker/tools/naming.py:call_names"),
        "worker/tools/traits.py:further_tools",
        *("worker/search/ripgrep.py:walk_options", "worker/xml_calls/instruction.py:declared_types"),
        "shared/json_schema.py:plain_schema",
    ),
    "a schema or a value of JSON, whose steps are counted before (shared/json_schema.py)": (
        "shared/json_schema.py:compiled",
        *("shared/json_schema.py:" + name for name in ("Bounds.__init__", "Bounds.place", "Bounds.pointer")),
        *("shared/json_schema.py:InvalidSchema.__init__", "worker/schemas/arguments.py:ArgumentSchema.__init__"),
        *("worker/schemas/arguments.py:invalid_arguments", "worker/tools/submit_result.py:SubmitResult.__init__"),
        *("worker/tools/submit_result.py:SubmitResult.parse", "worker/tools/submit_result.py:tools_for_output"),
        *("worker/tools/base.py:Tool.parse", "worker/policy/base.py:PolicyCall.of"),
    ),
    "it only puts the text into another one, compares or cuts it": (
        *("worker/policy/shell/forbidden.py:why_never", "worker/policy/shell/forbidden.py:name_of"),
        *(f"worker/policy/shell/executed_text.py:{name}" for name in ("executed_by", "printed_by")),
        "worker/policy/shell/git_alias.py:is_alias_of_git",
        *("worker/policy/shell/programs.py:elsewhere", "worker/text/edit.py:refuse_empty"),
        *(
            "worker/text/edit.py:no_change_error",
            "worker/text/output.py:hint_of",
            "worker/text/output.py:lines_hint_of",
        ),
        *(
            "worker/text/rewrite.py:splice",
            "worker/text/rewrite.py:line_numbers",
            "worker/text/textfile.py:not_text_error",
        ),
        "worker/tools/call_subagent.py:report",
        *("worker/tools/command_calls.py:shell", "worker/tools/command_calls.py:outcome_of"),
        *("worker/tools/naming.py:find_tool", "worker/tools/naming.py:own_call"),
        *("worker/tools/context.py:" + name for name in ("ToolResult.failed", "ToolContext.reading")),
        *("worker/tools/context.py:ToolContext.metadata", "worker/tools/pages.py:format_page"),
        *("worker/tools/pages.py:format_remark_line", "worker/tools/skills.py:SkillLoader.get_skill"),
        *("worker/xml_calls/instruction.py:format_tool_call", "worker/xml_calls/instruction.py:format_tool_result"),
        *("worker/search/ripgrep.py:" + name for name in ("SkippedPaths.add", "SkippedPaths.give_up", "add_skipped")),
        "worker/web/proxy_connection.py:ProxyConnection.fail",
        *("worker/verification/" + name for name in _OF_VERDICTS.split()),
        *("worker/mcp/answers.py:" + name for name in ("unreadable", "Lines.feed", "Usable.__init__")),
        *("worker/models/endings.py:is_cut", "worker/models/endings.py:ending_of"),
        *("worker/models/retry.py:" + name for name in _OF_ERRORS.split()),
        *("worker/models/stream.py:ReplyAssembler.feed", "shared/patch_format.py:created_part"),
    ),
    "a part of what a function above reads, which measures it, too": (
        *(f"worker/models/retry.py:{name}" for name in ("classify_response", "is_overflow", "output_maximum")),
        *("worker/mcp/config.py:ToolFilter.lets", "worker/mcp/config.py:Server.trusts"),
        "worker/verification/suspicions/comparisons.py:Comparisons.bent_in",
        *("worker/verification/own_tests.py:suspected", "worker/verification/own_tests.py:CodeBefore.holds"),
        *("worker/verification/protected/paths.py:of_ini", "worker/verification/suspicions/shadowing.py:shadowing"),
        "worker/verification/suspicions/python_types.py:is_only_for_checkers",
        *("worker/text/merge.py:Merge.__init__", "worker/text/replacement.py:Tolerance.matches"),
        *("worker/text/replacement.py:trim_repeated", "worker/text/rewrite.py:Replacement.report"),
        *("worker/text/rewrite.py:" + name for name in ("differences", "show_lines", "rewrite", "is_shallow")),
        *("shared/patch_format.py:Hunk.place", "shared/patch_format.py:PatchPart.result"),
        *("shared/patch_format.py:PatchPart.merged_by_context", "worker/search/grep.py:with_matches"),
    ),
    "it works on files or hosts, in pieces that give way": (
        *_OF_PROGRAMS.split(),
        *("worker/tools/artifacts.py:ArtifactWriter.probe", "worker/tools/base.py:Recoverable.probe"),
        *("worker/tools/bash.py:Bash.probe", "worker/tools/edit_file.py:EditFile.probe"),
        *("worker/tools/notes.py:RecordNote.probe", "worker/tools/missing_files.py:file_not_found_error"),
        "worker/tools/missing_files.py:refuse_foreign_form",
        *("worker/tools/pages.py:FileLines.add", "worker/tools/pages.py:read_lines"),
        *("worker/search/grep.py:arguments_of", "worker/tools/pages.py:ManyFiles.resolve"),
        "worker/search/ripgrep.py:run_ripgrep",
        *("worker/search/listing.py:" + name for name in _LISTING.split()),
        *("worker/web/dial.py:Network.resolve", "worker/web/dial.py:GuardedTransport.check_url"),
        *(
            "worker/web/fetch.py:fetch",
            "worker/web/fetch.py:raw_url",
            "worker/web/search_providers.py:SearchProvider.ask",
        ),
        *(
            "worker/verification/sources/broken_functions.py:FunctionBreaker.__init__",
            "worker/verification/canary.py:Rewriter.of",
        ),
        *("worker/verification/canary.py:break_by_patch", "worker/verification/runners/known.py:Instrumented.report"),
        *(
            "worker/verification/canary.py:reverse_scripts",
            "worker/verification/canary.py:reversed_paths",
            "worker/verification/grounds/left_files.py:put_back",
            "worker/verification/runners/execution.py:Observed.completed",
            "worker/verification/reports/report_channel.py:ReportChannel.__init__",
        ),
        *("worker/verification/reports/report_files.py:" + name for name in ("read_inside", "remove_old")),
        *("worker/verification/grounds/ground.py:" + name for name in _GROUND.split()),
    ),
    "it runs in a process of its own, with bounds of time and memory": (
        *("worker/web/converter.py:html", "worker/web/converter.py:pdf"),
    ),
}
"""Those that need no measuring, by the reason."""


def readers() -> Iterator[str]:
    """Yields the public functions of ``ROOMS`` that take a text, or several, by their file and name."""
    for room in ROOMS:
        path = ROOT / room
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if any(file.is_relative_to(ROOT / other) for other in NOT_OF_RUNS):
                continue
            for name in _of(ast.parse(file.read_text("utf-8")).body):
                yield f"{file.relative_to(ROOT)}:{name}"


def _of(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for part in body:
        if isinstance(part, ast.ClassDef) and not part.name.startswith("_"):
            yield from _of(part.body, f"{part.name}.")
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(part.name) and _takes_text(part):
            yield f"{within}{part.name}"


def _is_public(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


def _takes_text(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    found = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs, function.args.vararg]
    types = [ast.unparse(each.annotation) for each in found if each and each.annotation]
    return any({"str", "bytes", "FileText"} & {*re.findall(r"\w+", each)} and "Callable" not in each for each in types)
