"""The reboots of this host: the plan of a run, the restart after it, and the cancellation of a scheduled restart.

* A run restarts the machine after everything else. Its report is stored by then, and sent or waiting in the spool.
* The restart happens under the lock of a run, so that it never ends another run.
* ``puller disable`` prevents a restart that a run is about to start, and cancels a scheduled one.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from foundation.times import minute_text
from puller.config.configuration import Configuration
from puller.errors import BusyError, ResourceError
from puller.exit_status import ExitStatus
from puller.reporting.run_log import RunProblems, problem_of, sentence_of
from puller.reporting.sinks import MessageId
from puller.resources.reboots.machine import Machine
from puller.resources.reboots.plan import RebootPlan, Records
from puller.run.policy.holds import find_disabled
from puller.state import Directories, only_run
from puller.system.processes import StopRequests
from puller.values.maintenance import PendingReboot


def this_machine() -> Machine:
    """Return the machine that Puller runs on."""
    return Machine()


def current_time() -> datetime:
    """Return the time of the clock."""
    return datetime.now(UTC)


def plan_of_run(
    configuration: Configuration,
    directories: Directories,
    host: Callable[[], str],
    warn: Callable[[str], None],
    *,
    noop: bool,
    is_allowed: bool = True,
) -> RebootPlan:
    """Return the plan of ``puller run``. Unless ``is_allowed``, a due reboot waits for another run."""
    withheld = "" if is_allowed else "for a run without --no-reboot"
    records = Records(directories.state, warn, noop=noop)
    return RebootPlan(
        this_machine(), records, current_time, host=host, windows=configuration.windows, withheld=withheld
    )


def restart_machine(
    plan: RebootPlan, directories: Directories, problems: RunProblems, stops: StopRequests
) -> None:
    """Restart the machine if its resources have requested it. An error is reported, and the next run tries again.

    1. Take the lock again: a restart must not end another run in the middle of its work.
    2. Another run has perhaps finished since. Its decision is the newer one.
    3. Restart the machine, unless an operator or a signal prevents it.
    """
    if not plan.is_requested:
        return
    try:
        # 1. Lock
        with only_run(directories.run):
            # 2. Newer decision
            if not plan.is_current():
                problems.log.notice("another run has decided about the reboot")
                return
            # 3. Restart
            _restart(plan, directories, problems, stops)
    except BusyError:
        problems.log.notice(
            "the machine is not restarted: another run is active, which decides about the reboot"
        )
    except OSError as error:
        problems.error(
            problem_of(error, f"the machine is not restarted: {sentence_of(error)}"), ExitStatus.FAILED
        )


def _restart(plan: RebootPlan, directories: Directories, problems: RunProblems, stops: StopRequests) -> None:
    held = find_disabled(directories, current_time())
    why = stops.reason or (str(held) if held else "")
    if not why:
        try:
            at = plan.restart()
            kind = MessageId.MACHINE_RESTARTS
            problems.log.notice(f"the machine restarts at {minute_text(at)}", kind=kind)
            return
        except (OSError, ResourceError) as error:
            why = sentence_of(error)
            problems.error(problem_of(error, f"the machine is not restarted: {why}"), ExitStatus.FAILED)
    else:
        problems.warn(f"the machine is not restarted: {why}")
    with problems.remembering():
        plan.withdraw(f"for the next run: {why}")


def pending_reboots(directories: Directories, warn: Callable[[str], None]) -> list[PendingReboot]:
    """Return the reboots that the last run left pending in this boot. Raise ``OSError``."""
    record = Records(directories.state, warn, noop=True).load()
    return record.after_boot(this_machine().boot).pending if record.pending else []


def cancel_scheduled(directories: Directories) -> datetime | None:
    """Cancel the restart that a run has scheduled. Return its time. Raise ``OSError`` and ``ResourceError``."""
    record, machine = Records(directories.state, noop=True).load(), this_machine()
    if record.request is None or not record.request.is_scheduled or record.boot != machine.boot:
        return None
    scheduled = machine.find_scheduled()
    if scheduled is None or scheduled.mode != "reboot":
        return None
    machine.cancel()
    return scheduled.at
