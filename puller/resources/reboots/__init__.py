"""The ``reboot`` resource: the reasons for a reboot, its time, and the restart of the machine."""
