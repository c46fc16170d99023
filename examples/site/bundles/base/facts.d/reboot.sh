#!/bin/sh
# The fact `reboot`: whether an update waits for a restart. The lines are YAML, so the value is true or false.
if [ -e /run/reboot-required ]; then
    echo 'required: true'
else
    echo 'required: false'
fi
