"""A process beside the worker that answers for its event loop: for a while with its leases, in the end with its life.

A worker renews its leases on the event loop, so that a loop which does not turn renews nothing. That is right where it
is dead, and wrong where C code holds the interpreter for some seconds: then no thread of the process could renew
either. So every worker process starts one *standby*, which shares neither the loop nor the interpreter.

- The loop beats: it writes a line to the standby several times a second, and which leases it holds.
- Without a beat for a third of a lease, the standby renews those leases in the loop's place. It says so, and the loop,
  when it turns again, counts those renewals as its own before it judges whether it has lost a run.
- Without a beat for longer than a lease (``bound``), the loop is given up: the standby ends the process (SIGABRT, which
  writes every thread's stack to the log; then SIGKILL), marks the runs it held as *stalled* and lets their leases end
  at once. From then on nobody renews them, and other workers go on.
- A process that somebody has stopped (SIGSTOP, a debugger) is neither renewed for nor ended: its leases lapse, and the
  fence keeps it from writing when it goes on. The standby's own sleep (a suspended machine) is not counted as silence.
- The standby ends with its worker. A standby that dies is started again with the next beat; without one, leases are
  what they were: renewed by the loop alone.

Calls that were open in a stalled run are not judged or carried out again by the next attempt (``worker/ledger.py``):
one of them may be what the loop stood still in, and it must not do the same to the next worker.
"""
