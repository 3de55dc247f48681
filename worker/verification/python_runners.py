"""Programs by which runners of tests in Python report each test.

They run in the sandbox beside the code under test, in whatever Python the project has; so they import nothing else.
"""

PYTEST = """
import json, os, pytest
path = os.environ.pop("CHECK_REPORT", None)
os.environ.pop("PYTEST_ADDOPTS", None)
PLACE = __name__ + "_place"

def put(**fields):
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(fields) + "\\n")

def pytest_sessionstart(session):
    put(begin=1)

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

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    os.environ.pop("PYTEST_CURRENT_TEST", None)

def pytest_sessionfinish(session, exitstatus):
    put(end=int(exitstatus), stopped=bool(session.shouldfail or session.shouldstop))
"""
"""A plugin: what it keeps from the environment, nested runs of pytest and the code under test do not see."""

PYTEST_ONLY = """
ONLY = set({})

def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.nodeid in ONLY] or items
"""
"""A plugin that leaves out all but some tests."""

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
UNITTEST = f"""
import json, os, sys, unittest
path = os.environ.pop("CHECK_REPORT")

def put(**fields):
    with open(path, "a") as file:
        file.write(json.dumps(fields) + "\\n")

{PLACE}
class Result(unittest.TextTestResult):
    def put(self, test, state):
        put(item=test.id(), **place(test))
        put(test=test.id(), state=state)
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

class Runner(unittest.TextTestRunner):
    resultclass = Result

put(begin=1)
ran = unittest.main(module=None, argv=["python -m unittest", *sys.argv[1:]], testRunner=Runner, exit=False)
good = ran.result.wasSuccessful()
empty = not ran.result.testsRun and not ran.result.skipped
put(end=0 if good else 1, stopped=ran.result.shouldStop)
sys.exit(5 if good and empty and sys.version_info >= (3, 12) else 0 if good else 1)
"""
"""Takes the place of ``python -m unittest``, with the same arguments and exit codes.

A module that cannot be imported and a class that cannot be set up are tests of unittest's own, which have no name.
"""
