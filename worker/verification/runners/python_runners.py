"""Programs by which runners of tests in Python report each test.

They run in the sandbox beside the code under test, in whatever Python the project has; so they import nothing else.
"""

from ...sandbox.environment import MOUNT

CHANNEL = """
import os
from _socket import AF_UNIX, SOCK_STREAM, socket
from json.encoder import encode_basestring_ascii as quoted

def opened():
    channel, key = socket(AF_UNIX, SOCK_STREAM), b""
    try:
        channel.connect("/opt/check/NAME_socket")
        while not key.endswith(b"\\n"):
            part = channel.recv(64)
            if not part:
                return None
            key += part
    except OSError:
        return None
    fd, write, key = channel.detach(), os.write, key.rstrip().decode()
    def send(fields):
        texts = [quoted(value) if isinstance(value, str) else str(value).lower() for value in fields.values()]
        pairs = [quoted(name) + ": " + text for name, text in zip(fields, texts)]
        data = (key + "{" + ", ".join(pairs) + "}\\n").encode()
        while data:
            data = data[write(fd, data):]
    return send

busy = []

def reporting(send):
    def begin():
        if send is None or busy:
            return False
        busy.append(1)
        send(dict(begin=1))
        return True
    def put(**fields):
        if send is not None:
            send(fields)
    def end(**fields):
        put(**fields)
        busy.clear()
    return begin, put, end

begin, put, end = reporting(opened())
"""
"""The connection of a process to the worker, which is one for all programs in it. It is made before the code under test
is loaded, and keeps what that code might replace."""

PLACE = """def place(test):
    made, method = type(test), getattr(test, "_testMethodName", "")
    if made.__module__.partition(".")[0] != "unittest":
        file = getattr(sys.modules.get(made.__module__), "__file__", None) or ""
        return dict(file=os.path.abspath(file), name=made.__qualname__ + "." + method)
    names = [each for each in sys.argv if each.endswith("." + method)] + [method]
    paths = [os.path.join(each, name.replace(".", "/") + ".py") for name in names for each in sys.path]
    return dict(file=os.path.abspath(next(filter(os.path.isfile, paths), "")), name="")
"""
"""Where a test of unittest is defined, in each program that reports such tests."""
LIBRARY = """
import time
from functools import partial
from sysconfig import get_paths
root = os.path.realpath(os.getcwd())
root = "ROOT/" if (root + "/").startswith("ROOT/") else root + "/"
installed = tuple(os.path.realpath(each) + "/" for each in get_paths().values())
asserting = ("unittest", "pytest", "_pytest", "pluggy", "NAME_channel")
of_tests = {"test", "tests", "testing", "spec", "specs", "t"}
settable = {
    "_loggerClass", "_logRecordFactory", "converter", "maxDiff", "longMessage", "_diffThreshold", "excepthook",
    "displayhook", "unraisablehook", "breakpointhook", "_trace_hook", "_profile_hook", "report_callback_exception",
    "showwarning", "formatwarning", "_create_default_https_context",
}
class Bound:
    def method(self): pass
plain, bound = type(Bound.method), type(Bound().method)
inner = {partial: "func", property: "fget", bound: "__func__", classmethod: "__func__", staticmethod: "__func__"}
scalars, descriptors = (int, float), (property, classmethod, staticmethod)

def state(value):
    return (value.__code__, value.__defaults__, value.__kwdefaults__) if type(value) is plain else None

kinds = {}
def kind(file):
    if file not in kinds:
        kinds[file] = kind_of(file)
    return kinds[file]

def kind_of(file):
    if file.startswith("<"):
        return "other"
    file = os.path.realpath(file)
    if file.startswith(installed) or "/site-packages/" in file or "/dist-packages/" in file:
        return "library"
    if not file.startswith(root):
        return "other"
    *folders, name = file[len(root):].split("/")
    is_test = name.startswith(("test_", "conftest")) or name.endswith("_test.py") or of_tests.intersection(folders)
    return "test" if is_test else "own"

def file_of(module):
    return str(getattr(module, "__file__", None) or "<none>")

def is_own(file):
    return kind(file) == "own"

def is_of_project(value):
    for _ in range(9):
        if type(value) in inner:
            value = getattr(value, inner[type(value)])
        if type(value) is plain and hasattr(value, "__wrapped__") and not is_own(value.__code__.co_filename):
            value = value.__wrapped__
    if type(value) is plain:
        return is_own(value.__code__.co_filename)
    name = getattr(value if is_class(value) else type(value), "__module__", None)
    return is_own(file_of(sys.modules.get(name)))

def is_class(value):  # a proxy may fail where it is asked for its class
    return issubclass(type(value), type)

def is_foreign(name, module):
    is_module = name != "__main__" and type(module) is type(sys)
    return is_module and kind(file_of(module)) in ("library", "other")

def is_of_library(name, module):  # what tests write and load may import the project
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return is_foreign(name, module) and (origin in ("built-in", "frozen") or kind(file_of(module)) == "library")

def members(place, owner, asserts):
    for key, value in [*vars(owner).items()]:
        if key in settable:
            continue
        if callable(value) or type(value) in descriptors or (asserts and len(place) == 2 and type(value) in scalars):
            yield place + (key,), value
            if len(place) == 1 and is_class(value) and getattr(value, "__module__", None) == place[0]:
                yield from members(place + (key,), value, asserts)

def is_at_home(value, name):
    return type(value) in scalars + descriptors or getattr(value, "__module__", None) == name

def library():
    found = {}
    for name, module in [*sys.modules.items()]:
        asserts = name.partition(".")[0] in asserting
        if is_foreign(name, module):
            found[name,] = module, None, False
            for place, value in members((name,), module, asserts):
                found[place] = value, state(value), asserts and is_at_home(value, name)
    return found

def bent(before):
    found, kept = [], [each for one in before for each in one.items()]
    for place, (known, as_it_was, asserts) in kept:
        part = sys.modules.get(place[0])
        for name in place[1:]:
            part = vars(part).get(name) if part is not None else None
        is_same = part is known or (type(known) in scalars and part == known)
        if is_same and (as_it_was is None or all(map(is_one, state(part), as_it_was))):
            continue
        if asserts or (part is not None and (is_same or is_of_project(part))):
            found.append(".".join(place))
    for name, module in [*sys.modules.items()]:
        if (name,) not in before[0] and is_of_library(name, module):
            places = [place for place, value in members((name,), module, False) if is_of_project(value)]
            code = places and code_of(module)
            known = code and names_in(code, 0)
            found += [".".join(place) for place in places if known is None or place[-1] in known]
    return ", ".join(sorted(found)[:100])[:3000]

def code_of(module):
    try:
        return module.__spec__.loader.get_code(module.__name__)
    except Exception:
        return None

def names_in(code, depth):
    inner = [names_in(each, depth + 1) for each in code.co_consts if type(each) is type(code)] if depth < 2 else []
    return {*code.co_names}.union(*inner)

watched, spent = [], [0]
def watch(before, clock=time.perf_counter):
    began = clock()
    if spent[0] < 0.1:
        watched.append(bent(before))
        spent[0] += clock() - began

def replaced(before):
    return ", ".join(sorted({name for each in [*watched, bent(before)] for name in each.split(", ") if name}))[:3000]

def is_one(one, other):
    return one is other
""".replace("ROOT", MOUNT)
"""Which functions of modules that are not the project's were replaced, in each program that compares them.

Of the libraries that assert and report any replacement counts, of others what code of the project replaced; tests are
none of it. So do other values of numbers in classes that assert, and other defaults of a function. They are compared at
the end, and behind the first tests, as long as that takes no time to speak of.
"""
PYTEST = f"""
import os, pytest, sys
from NAME_channel import begin, end, put
given = os.environ.pop("PYTEST_ADDOPTS", "")
PLACE = __name__ + "_place"

{LIBRARY}
before = [{{place: (*kept[:2], False) for place, kept in library().items()}}]

@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    before.append({{place: kept for place, kept in library().items() if kept[2]}})
    begin()

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes():
    of_workers = given.replace("-p NAME", "", 1).strip()
    if of_workers:
        os.environ["PYTEST_ADDOPTS"] = of_workers

def place(item):
    name = "::".join(item.nodeid.split("::")[1:]).partition("[")[0].replace("::", ".")
    return dict(file=str(getattr(item, "path", None) or item.fspath), name=name)

def located(report):
    file, _, name = report.location
    return dict(file=os.path.abspath(file), name=name.partition("[")[0])

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    made = yield
    setattr(made.get_result(), PLACE, place(item))

def pytest_collectreport(report):
    if report.failed:
        put(test=report.nodeid or ".", state="failed", file=os.path.abspath(str(report.fspath or "")))

def pytest_runtest_logreport(report):
    state = "skipped" if hasattr(report, "wasxfail") else report.outcome
    put(item=report.nodeid, **(getattr(report, PLACE, None) or located(report)))
    if report.when == "call" or state != "passed":
        put(test=report.nodeid, state=state)
    if report.when == "teardown":
        watch(before)

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    os.environ.pop("PYTEST_CURRENT_TEST", None)

def pytest_sessionfinish(session, exitstatus):
    end(end=int(exitstatus), stopped=bool(session.shouldfail or session.shouldstop), bent=replaced(before))
"""
"""A plugin: what it keeps from the environment, nested runs of pytest and the code under test do not see.

Processes of xdist get all options but this plugin.
"""

PYTEST_ORDER = """
import os, pytest
rest = os.environ.pop("PYTEST_ADDOPTS", "").replace("-p NAME_order", "", 1).strip()
if rest:
    os.environ["PYTEST_ADDOPTS"] = rest
ONLY, REVERSED = set(ALONE), BACKWARDS

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.nodeid in ONLY] or items
    if REVERSED:
        items.reverse()
"""
"""A plugin that leaves out all but some tests, or executes them in reverse."""
ORDER = """
ONLY, REVERSED = set(ALONE), BACKWARDS

def ids(test):
    if type(test) is not unittest.TestSuite:
        return [test.id()] if hasattr(test, "id") else []
    return [id for each in test for id in ids(each)]

def in_order(test):
    alone = [id for id in ids(test) if id in ONLY or any(each.endswith("::" + id) for each in ONLY)]
    def chosen(test):
        if type(test) is not unittest.TestSuite:
            return test
        parts = [chosen(each) for each in test if not alone or not hasattr(each, "id") or each.id() in alone]
        return unittest.TestSuite(parts[::-1] if REVERSED else parts)
    return chosen(test) if ONLY or REVERSED else test
"""
"""The same for tests of unittest, in each program that reports them."""

REPORTING = """def reporting(base):
    class Result(base):
        def put(self, test, state):
            put(item=test.id(), **place(test))
            put(test=test.id(), state=state)
            watch(before)
        def addSuccess(self, test): super().addSuccess(test); self.put(test, "passed")
        def addFailure(self, test, err): super().addFailure(test, err); self.put(test, "failed")
        def addError(self, test, err): super().addError(test, err); self.put(test, "failed")
        def addSkip(self, test, reason): super().addSkip(test, reason); self.put(test, "skipped")
        def addExpectedFailure(self, test, err): super().addExpectedFailure(test, err); self.put(test, "skipped")
        def addUnexpectedSuccess(self, test): super().addUnexpectedSuccess(test); self.put(test, "failed")
        def addSubTest(self, test, subtest, err):
            super().addSubTest(test, subtest, err)
            if err is not None:
                self.put(test, "failed")
    Result.__name__, Result.__qualname__ = base.__name__, base.__qualname__
    return Result
"""
"""The class of results that reports each test of unittest, on top of the one that a runner has."""

UNITTEST = f"""
import os, sys, unittest
from NAME_channel import begin, end, put

{PLACE}
{REPORTING}
{ORDER}
class Runner(unittest.TextTestRunner):
    resultclass = reporting(unittest.TextTestResult)
    def run(self, test):
        return super().run(in_order(test))

{LIBRARY}
before = [library()]
begin()
ran = unittest.main(module=None, argv=["python -m unittest", *sys.argv[1:]], testRunner=Runner, exit=False)
good = ran.result.wasSuccessful()
empty = not ran.result.testsRun and not ran.result.skipped
end(end=0 if good else 1, stopped=ran.result.shouldStop, bent=replaced(before))
sys.exit(5 if good and empty and sys.version_info >= (3, 12) else 0 if good else 1)
"""
"""Takes the place of ``python -m unittest``, with the same arguments and exit codes.

A module that cannot be imported and a class that cannot be set up are tests of unittest's own, which have no name.
"""
