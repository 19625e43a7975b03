#!/bin/sh
# Tests ranks on two hosts and pulls the cable between them. The hosts are network namespaces with host names. Needs
# root and ip.
. "$(dirname "$0")/../lib.sh"
rank="$build/test_connect --as-rank"
export OMP_NUM_THREADS=1

hosts="gpt2c-$$-0 gpt2c-$$-1"
remove_hosts() { for h in $hosts; do ip netns delete "$h" 2>/dev/null; done; }
trap 'remove_hosts; clean' EXIT
make_hosts() { # two hosts, joined by a cable
    ip netns add "gpt2c-$$-0" && ip netns add "gpt2c-$$-1" &&
    ip -n "gpt2c-$$-0" link add cable type veth peer name cable netns "gpt2c-$$-1" || return 1
    for n in 0 1; do
        ip -n "gpt2c-$$-$n" link set lo up && ip -n "gpt2c-$$-$n" link set cable up &&
        ip -n "gpt2c-$$-$n" address add "10.77.0.$((n + 1))/24" dev cable || return 1
        ip -n "gpt2c-$$-$n" address add "fd77::$((n + 1))/64" dev cable nodad 2>/dev/null || no_ipv6=1
    done
}

# Runs a command as rank N of 2 on host "nodeN", where $dir/hostsN, if it is there, stands for /etc/hosts. Rank 0's
# address is $address. The output goes to $dir/N.
on() { # N command...
    n=$1
    shift
    names="$dir/hosts$n"
    [ -f "$names" ] || names=/etc/hosts
    ip netns exec "gpt2c-$$-$n" unshare --uts --mount \
        sh -c 'hostname "$1"; mount --bind "$0" /etc/hosts; shift; exec "$@"' "$names" "node$n" \
        env RANK="$n" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR="$address" "$@" >"$dir/$n" 2>&1
}
said() { grep -qF -- "$2" "$dir/$1" || note "no '$2' from rank $1, but: $(tail -n 1 "$dir/$1")"; }

meet_at() { # ADDRESS
    address=$1
    on 1 $rank 0.2 60 "$dir" & one=$!
    on 0 $rank 0.2 60 "$dir" & zero=$!
    ends 0 $zero "$dir/0"
    ends 0 $one "$dir/1"
    said 0 'rank 0 of 2 on node0'
    said 1 'rank 1 of 2 on node1'
}

two_hosts_meet() {
    for at in 10.77.0.1 ${no_ipv6:-fd77::1}; do meet_at $at; done
}

# Rank 0's machine knows two addresses of its name, the other one only the second of them.
a_name_with_two_addresses_is_reached() {
    [ -z "${no_ipv6:-}" ] || { skip="no IPv6 here"; return; }
    printf '127.0.0.1 localhost\nfd77::1 node0\n10.77.0.1 node0\n' >"$dir/hosts0"
    printf '127.0.0.1 localhost\n10.77.0.1 node0\n' >"$dir/hosts1"
    meet_at node0
}

# Debian's /etc/hosts gives the machine's own name a loopback address. Names may begin with a digit.
a_name_with_a_loopback_address_is_reached() {
    for name in node0 0node; do
        printf '127.0.0.1 localhost\n127.0.1.1 %s\n' $name >"$dir/hosts0"
        printf '127.0.0.1 localhost\n10.77.0.1 %s\n' $name >"$dir/hosts1"
        meet_at $name
    done
}

tiny="--model L=1,H=2,C=32,T=16,V=257 --tokenizer bytes --seq_len 16 --batch_size 1 --total_batch_size 64 \
    --val_every 0 --sample_every 0"

# Two emulated GPU trainers meet by a file in --out and train.
trainers_meet() {
    corpus
    address=10.77.0.1
    run="$cuda $tiny $data"
    on 0 $run --max_steps 3 --save_every 0 --out "$dir/run" & zero=$!
    on 1 $run --max_steps 3 --save_every 0 --out "$dir/run" & one=$!
    ends 0 $zero "$dir/0"
    ends 0 $one "$dir/1"
    said 0 'step    3/3'
}

# scripts/multi_node/ssh.sh starts a run on two machines with two GPUs each, stops it and resumes it. $dir/ssh runs `ip
# netns exec` in place of ssh.
ssh_starts_stops_and_goes_on() {
    corpus
    printf '#!/bin/sh\nn=$((${1##*.} - 1))\nexec ip netns exec "gpt2c-%s-$n" ' $$ >"$dir/ssh"
    printf 'unshare --uts sh -c "hostname node$n; $2"\n' >>"$dir/ssh"
    run="env SSH=$dir/ssh TRAINER=$cuda GPUS=2 sh scripts/multi_node/ssh.sh scripts/run_gpt2_124M.sh $tiny $data \
        --out $dir/run"
    chmod +x "$dir/ssh"
    HOSTS="10.77.0.1 10.77.0.2" $run --max_steps 100000 --prompt "it's" >"$dir/0" 2>&1 & pid=$!
    await 'step    5/' "$dir/0" $pid
    kill -TERM $pid
    ends 0 $pid "$dir/0"
    said 0 'saved step'
    last=$(ls "$dir/run" | sed -n 's/step_0*//p' | tail -n 1)
    HOSTS="10.77.0.1 10.77.0.2" $run --max_steps $((last + 2)) >"$dir/0" 2>&1 & pid=$!
    ends 0 $pid "$dir/0"
    said 0 "resumed after step $last"
    grep -q '"prompt":"it'"'"'s"' "$dir/run/metrics.jsonl" || note "a quoted argument did not arrive"
}

# Pulls the cable between two ranks that have met.
cut_link() { # SECONDS that they run, --timeout
    address=10.77.0.1
    on 0 $rank $1 $2 "$dir" & zero=$!
    on 1 $rank $1 $2 "$dir" & one=$!
    await 'rank 0 of 2' "$dir/0" $zero
    await 'rank 1 of 2' "$dir/1" $one
    ip -n "gpt2c-$$-1" link set cable down
}

# A pulled cable closes no connection: only missing heartbeats show it.
a_cut_link_is_found_by_both() {
    cut_link 60 2
    ends 1 $zero "$dir/0"
    ends 1 $one "$dir/1"
    said 0 'error: rank 1 on node1 has sent no heartbeat for 2'
    said 1 'error: rank 0 on node0 has sent no heartbeat for 2'
    ip -n "gpt2c-$$-1" link set cable up
}

# A cable that is put back within the time-out does not end the run.
a_short_cut_is_survived() {
    cut_link 4 60
    sleep 1
    ip -n "gpt2c-$$-1" link set cable up
    ends 0 $zero "$dir/0"
    ends 0 $one "$dir/1"
}

a_host_that_cannot_be_reached_is_named() {
    address=10.77.0.1
    ip -n "gpt2c-$$-1" link set cable down
    on 0 $rank 1 3 "$dir" & zero=$!
    tries=0
    until ls -A "$dir" | grep -q '^\.tmp-ranks-' || ! kill -0 $zero || [ $tries = 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    on 1 $rank 1 1 "$dir" & one=$!
    ends 1 $one "$dir/1"
    ends 1 $zero "$dir/0"
    said 1 'rank 1 could not reach rank 0 at 10.77.0.1 port '
    said 0 'of 2 ranks, rank 1 did not connect to rank 0 on node0 at port '
    ip -n "gpt2c-$$-1" link set cable up
}

set +f
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v unshare >/dev/null ||
    ! make_hosts 2>/dev/null; then
    echo "skipped: two hosts need root, ip (iproute2) and the right to make network namespaces"
    exit 77
fi
run_tests
