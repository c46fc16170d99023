#!/bin/sh
# Records its start with its configuration, and waits.
head -2 /etc/daemon.conf | tail -1 >> /var/lib/daemon/starts
exec sleep infinity
