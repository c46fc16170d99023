#!/bin/sh
# The fact `links`: command directories that are symbolic links, such as /bin since Debian 12.
echo '---'
for directory in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
    [ -L "$directory" ] && echo "$directory: true"
done
exit 0
