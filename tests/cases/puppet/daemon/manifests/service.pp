class daemon::service {
  service { 'daemon':
    ensure => $daemon::service_ensure,
    enable => $daemon::service_ensure ? { 'running' => true, default => false },
  }
  service { 'fstrim.timer': ensure => stopped, enable => false }
}
