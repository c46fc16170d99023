# Edits of files of the system, and jobs.
class system (
  String $editor = 'vim.tiny',
  Hash $hosts = { 'db.example.com' => '192.0.2.10', 'log.example.com' => '192.0.2.11' },
) {
  file_line { 'editor':
    path  => '/etc/environment',
    line  => "EDITOR=${editor}",
    match => '^EDITOR=',
  }
  ini_setting { 'journal':
    ensure  => present,
    path    => '/etc/systemd/journald.conf.d.ini',
    section => 'Journal',
    setting => 'SystemMaxUse',
    value   => '200M',
  }
  host { 'registry.example.com':
    ip           => '192.0.2.12',
    host_aliases => ['registry'],
  }
  $message = $facts['os']['release']['major'] ? {
    '12'    => 'bookworm',
    default => 'another release',
  }
  file { '/etc/motd':
    content => "This is ${message}.\n",
  }
  file { '/etc/cleanup.sh':
    ensure  => file,
    mode    => 'u=rwx,go=rx',
    content => @("END"),
      #!/bin/sh
      # For ${facts['os']['family']}
      rm -rf /tmp/old
      | END
  }
  file { '/etc/issue.net': ensure => absent }
}
