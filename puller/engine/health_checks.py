"""Health checks: commands with the exit codes of Nagios plugins (0 OK, 1 WARNING, 2 CRITICAL, else UNKNOWN)."""

import os
import time

from puller.errors import reason
from puller.reporting.report import Health, HealthResult
from puller.resources.base import HealthCheck
from puller.system.commands import Command, Completed
from puller.system.protocol import System
from puller.system.shell_words import split_words

_BY_EXIT_CODE = {0: Health.OK, 1: Health.WARNING, 2: Health.CRITICAL}
_LAST_OF_NAGIOS = 3


def check_health(check: HealthCheck, system: System) -> HealthResult:
    """Try until it is OK or the tries are used up; a result in every case, also when it cannot be started."""
    name = check.name or next(map(os.path.basename, check.command.split()), "without a command")
    tries = 1
    while True:
        result = _try_once(name, tries, check, system)
        if result.status is Health.OK or tries >= check.tries:
            return result
        time.sleep(check.try_sleep)
        tries += 1


def _try_once(name: str, tries: int, check: HealthCheck, system: System) -> HealthResult:
    try:
        if not (words := split_words(check.command)):
            raise ValueError("its command has no words")
        completed = system.query(Command(words, timeout=check.timeout))
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        return HealthResult(name, Health.UNKNOWN, tries, "cannot be started", error_output=why)
    status, outcome = _judge(completed)
    return HealthResult(name, status, tries, outcome, completed.stdout.strip(), completed.stderr.strip())


def _judge(completed: Completed) -> tuple[Health, str]:
    code = completed.exit_code
    if code is None:
        return Health.UNKNOWN, completed.outcome
    status = _BY_EXIT_CODE.get(code, Health.UNKNOWN)
    # What another program means by 22 is for it to say.
    return status, f"exit status {code} ({status})" if code <= _LAST_OF_NAGIOS else f"exit status {code}"
