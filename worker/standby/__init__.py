"""A companion process of the worker that renews its leases while its event loop is blocked, and ends it if it stays so.

A worker renews its leases on the event loop, so that a blocked loop renews nothing. That is right where it is stuck for
good, and wrong where C code holds the interpreter for some seconds: then no thread of the process could renew either.
So every worker process starts one *standby*, which shares neither the loop nor the interpreter.

- The loop sends heartbeats: a line to the standby several times per second, and which leases it holds.
- Without a heartbeat for a third of a lease, the standby renews those leases instead. It reports this, and the loop,
  when it runs again, counts those renewals before it decides whether it has lost a run.
- Without a heartbeat for longer than a lease (``bound``), the standby ends the process (SIGABRT, which writes every
  thread's stack to the log; then SIGKILL), marks the runs it held as *stalled* and ends their leases at once, so that
  other workers take them over.
- For a stopped process (SIGSTOP, a debugger) the standby neither renews nor ends it: its leases lapse, and the fence
  rejects its writes when it continues. The standby's own sleep (a suspended machine) does not count as a missed beat.
- When no thread of the worker runs any more, the standby kills sandboxes that were being set up (it starts before the
  first one; all others die with the worker) and ends the leases, so that other workers take the runs over.
- The standby ends with its worker. One that crashes is restarted with the next heartbeat; without a standby, leases are
  renewed by the loop alone.

The next attempt does not judge or execute the calls that were open in a stalled run (``worker/core/ledger.py``): one of
them may have blocked the loop, and must not block the next worker.

Which of the held runs has blocked the loop is not known. So a standstill counts for each of them, and for none as a
lost worker. After the second one a run goes on in a process of its own (``start_alone`` in ``worker/task.py``): a run
that did nothing ends there as ever, and one that blocks its process again is given up, and stops no other one. The
worker ends a process that does not claim its run in time. Turns that complete take standstills back
(``standstills.lua``), so that a long run outlives rare ones of its machine.
"""
