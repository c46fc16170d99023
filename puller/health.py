"""Health checks: commands with the exit codes of Nagios plugins (0 OK, 1 WARNING, 2 CRITICAL, else UNKNOWN)."""

import os
import time

from puller.commands import Command, Completed
from puller.report import Health, HealthResult
from puller.resources.base import HealthCheck
from puller.shellwords import split_words
from puller.system import System, reason

_BY_EXIT_CODE = {0: Health.OK, 1: Health.WARNING, 2: Health.CRITICAL}


def check_health(check: HealthCheck, system: System) -> HealthResult:
    """Try until it is OK or the tries are used up; a result in every case, also when it cannot be started."""
    name = (
        check.name or os.path.basename(check.command.split()[0]) if check.command.strip() else "health check"
    )
    tries = 1
    while True:
        status, output = _try_once(check, system)
        if status is Health.OK or tries >= check.tries:
            return HealthResult(name, status, tries, output)
        time.sleep(check.try_sleep)
        tries += 1


def _try_once(check: HealthCheck, system: System) -> tuple[Health, str]:
    try:
        completed = system.query(Command(split_words(check.command), timeout=check.timeout))
    except (OSError, ValueError, IndexError) as error:
        return Health.UNKNOWN, f"cannot be started: {reason(error) if isinstance(error, OSError) else error}"
    return _judge(completed)


def _judge(completed: Completed) -> tuple[Health, str]:
    if completed.exit_code is None:
        return Health.UNKNOWN, completed.outcome
    return _BY_EXIT_CODE.get(completed.exit_code, Health.UNKNOWN), completed.stdout.strip()
