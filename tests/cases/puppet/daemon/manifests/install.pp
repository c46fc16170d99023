class daemon::install {
  package { $daemon::package: ensure => $daemon::package_ensure }
  file { '/usr/local/bin/daemon':
    source => 'puppet:///modules/daemon/daemon.sh',
    owner  => 'root',
    group  => 'root',
    mode   => '0755',
  }
  file { '/var/lib/daemon': ensure => directory, mode => '0750', owner => 'mail', group => 'mail' }
}
