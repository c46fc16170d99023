# A package with its configuration, its unit and its jobs.
class daemon (
  String $package,
  Integer[1] $interval,
  Hash[String, Variant[String, Array[String]]] $settings = {},
  String $package_ensure = 'installed',
  Enum['running', 'stopped'] $service_ensure = 'running',
  Optional[Integer] $ttl = 65,
) {
  contain daemon::install
  contain daemon::config
  contain daemon::service
  Class['daemon::install'] -> Class['daemon::config'] ~> Class['daemon::service']

  cron { 'report of the daemon':
    command => '/usr/local/bin/daemon --report',
    user    => 'mail',
    hour    => 4,
    minute  => [10, 40],
  }
  cron { 'cleanup of the daemon':
    command => 'find /var/lib/daemon -name "*.tmp" -delete',
    special => 'daily',
  }
  if $ttl {
    exec { 'time to live':
      command => "echo ${ttl} > /proc/sys/net/ipv4/ip_default_ttl",
      unless  => "grep -qx ${ttl} /proc/sys/net/ipv4/ip_default_ttl",
      path    => ['/usr/bin', '/bin'],
    }
  }
}
