# A file of parts.
class fragments (
  Hash[String, Integer] $shares = { 'home' => 20, 'media' => 30 },
) {
  concat { '/etc/exports.test':
    owner => 'root',
    group => 'root',
    mode  => '0600',
  }
  concat::fragment { 'header':
    target  => '/etc/exports.test',
    content => "# Shares.\n",
    order   => '05',
  }
  $shares.each |$share, $order| {
    concat::fragment { "share ${share}":
      target  => '/etc/exports.test',
      content => "/srv/${share} 192.0.2.0/24(ro)\n",
      order   => $order,
    }
  }
}
