# What the scripts of this folder share. Sourced, never run.
# Everything that is installed or written goes below $HIGHWATER_CLIENTS (default: target/clients).

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${HIGHWATER_CLIENTS:-$root/target/clients}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# The one user that every server here knows.
user=app
password=s3cret

# The settings of the broker that kafka-python's suite starts where it can: its id, and short sessions.
KAFKA_PYTHON_BROKER='node_id = 0
session_min = "3s"'

die() { echo "$*" >&2; exit 1; }

# need COMMAND PACKAGE: installs the Debian package unless the command is there.
need() { command -v "$1" >/dev/null || apt_install "$2"; }

apt_updated=
apt_install() {
  local sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  [ -n "$apt_updated" ] || { $sudo apt-get update -qq; apt_updated=1; }
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

# make_certs DIR: a certificate authority (ca.pem), and the certificates of a server (cert.pem, key.pem) and of a client
# (client.pem, client.key) that it signed. other.pem has the name of the client, and no authority.
make_certs() {
  local d=$1 client="/CN=$user.client.test"
  [ -s "$d/cert.pem" ] && return
  mkdir -p "$d"
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=Highwater test authority" \
    -keyout "$d/ca.key" -out "$d/ca.pem" 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout "$d/key.pem" -out "$d/cert.csr" 2>/dev/null
  openssl x509 -req -in "$d/cert.csr" -CA "$d/ca.pem" -CAkey "$d/ca.key" -CAcreateserial -days 30 -out "$d/cert.pem" \
    -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -subj "$client" -keyout "$d/client.key" -out "$d/client.csr" 2>/dev/null
  openssl x509 -req -in "$d/client.csr" -CA "$d/ca.pem" -CAkey "$d/ca.key" -CAcreateserial -days 30 -out "$d/client.pem" \
    -extfile <(echo "extendedKeyUsage=clientAuth") 2>/dev/null
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "$client" -keyout "$d/other.key" -out "$d/other.pem" 2>/dev/null
}

# answers PORT: something accepts connections on it.
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# wait_ready PID PORT LOG: until the port answers; fails when the process ends or after 60 seconds.
wait_ready() {
  local tries=0
  until answers "$2"; do
    kill -0 "$1" 2>/dev/null || { tail -20 "$3" >&2; die "the server ended while starting, see $3"; }
    [ $((tries += 1)) -lt 600 ] || { tail -20 "$3" >&2; die "the server does not answer on port $2, see $3"; }
    sleep 0.1
  done
}

# stop_pid FILE: ends the process whose id is in FILE, politely first, and waits until it is gone.
stop_pid() {
  [ -s "$1" ] || return 0
  local pid tries=0; pid=$(cat "$1")
  kill "$pid" 2>/dev/null || true
  while kill -0 "$pid" 2>/dev/null; do
    [ $((tries += 1)) -ne 200 ] || kill -9 "$pid" 2>/dev/null || true
    sleep 0.1
  done
  rm -f "$1"
}
