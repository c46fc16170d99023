# A web server whose service does not start, because packages stay out of the comparison.
class webserver (
  Integer $port = 8080,
  Boolean $tls = true,
  Array[String] $aliases = ['www', 'shop'],
  Hash[String, String] $limits = { 'body' => '1m', 'header' => '8k' },
  Optional[String] $banner = undef,
) inherits webserver::params {
  contain webserver::install
  contain webserver::config
  Class['webserver::install'] -> Class['webserver::config']
}
