class daemon::config {
  file {
    default:
      ensure => file,
      owner  => 'root',
      group  => 'mail',
      mode   => '0640';
    '/etc/daemon.conf':
      content => epp('daemon/daemon.conf.epp', {
        'interval' => $daemon::interval,
        'settings' => $daemon::settings,
      });
    '/etc/systemd/system/daemon.service':
      group   => 'root',
      mode    => '0644',
      content => "[Service]\nExecStart=/usr/local/bin/daemon\nUser=mail\n[Install]\nWantedBy=multi-user.target\n",
      notify  => Exec['reload systemd'];
  }
  exec { 'reload systemd':
    command     => 'systemctl daemon-reload',
    path        => '/usr/bin:/bin',
    refreshonly => true,
  }
  exec { 'only without a configuration':
    command   => 'echo ran >> /var/lib/daemon/guarded',
    path      => '/usr/bin:/bin',
    unless    => 'test -e /etc/daemon.conf',
    subscribe => File['/etc/daemon.conf'],
  }
}
