#!/bin/sh
# The fact `reboot`: whether an update requires a restart. The output is YAML, so the value is a boolean.
if [ -e /run/reboot-required ]; then
    echo 'required: true'
else
    echo 'required: false'
fi
