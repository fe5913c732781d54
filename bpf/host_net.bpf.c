/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Calls on sockets by process and peer, and TCP segments sent again by connection. */
#include "bpf/host.h"

#define FAMILY_INET        2
#define FAMILY_INET6       10
#define STATE_SYN_SENT     2
#define STATE_SYN_RECV     3
#define STATE_NEW_SYN_RECV 12
#define FLAG_PEEK          2
#define GIVEN_PORTS        32768
#define EAGAIN_NR          11

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 8192);
    __type(key, struct ltn_net_key);
    __type(value, struct ltn_net_stats);
} host_net SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 8192);
    __type(key, struct ltn_retransmit_key);
    __type(value, struct ltn_retransmit_stats);
} host_retransmits SEC(".maps");

/* Which watched process used a socket, so that a segment sent again in an interrupt has an owner.
 * The ports tell a socket from the next one at the same address. */
struct ltn_socket_owner {
    ltn_u32 tgid;
    ltn_u16 local_port;
    ltn_u16 peer_port;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192);
    __type(key, ltn_u64);
    __type(value, struct ltn_socket_owner);
} socket_owners SEC(".maps");

static __always_inline ltn_u16 host_order(ltn_u16 v)
{
    return (ltn_u16)(v << 8 | v >> 8);
}

static __always_inline void remember_owner(struct sock *sk, struct ltn_socket_owner *now)
{
    ltn_u64 at = (ltn_u64)sk;
    struct ltn_socket_owner *known = bpf_map_lookup_elem(&socket_owners, &at);
    if (!known || known->tgid != now->tgid || known->local_port != now->local_port ||
        known->peer_port != now->peer_port) {
        bpf_map_update_elem(&socket_owners, &at, now, BPF_ANY);
    }
}

/* The service has the lower port, unless both are such as the kernel gives out by itself. */
static __always_inline ltn_u16 side_of(ltn_u16 local, ltn_u16 peer)
{
    if (local >= GIVEN_PORTS && peer >= GIVEN_PORTS) {
        return LTN_SIDE_UNKNOWN;
    }
    return peer == 0 || local < peer ? LTN_SIDE_SERVER : LTN_SIDE_CLIENT;
}

/* Sums of the peer that the socket is connected to; a socket without one has zeros as its peer. */
static __always_inline struct ltn_net_stats *peer_stats(struct sock *sk, struct ltn_host_process *p,
                                                        ltn_u32 tgid)
{
    struct ltn_net_key key = {.tgid = tgid};
    key.family = sk->__sk_common.skc_family;
    key.protocol = sk->sk_protocol;
    if (key.family == FAMILY_INET || key.family == FAMILY_INET6) {
        ltn_u16 local = sk->__sk_common.skc_num;
        ltn_u16 peer = host_order(sk->__sk_common.skc_dport);
        struct ltn_socket_owner owner = {.tgid = tgid, .local_port = local, .peer_port = peer};
        key.side = side_of(local, peer);
        key.port = key.side == LTN_SIDE_SERVER ? local : peer;
        if (key.family == FAMILY_INET) {
            __builtin_memcpy(key.peer, &sk->__sk_common.skc_daddr, 4);
        } else if (bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
            bpf_core_read(key.peer, sizeof(key.peer), &sk->__sk_common.skc_v6_daddr);
        }
        remember_owner(sk, &owner);
    }
    struct ltn_net_stats *s = bpf_map_lookup_elem(&host_net, &key);
    if (!s) {
        struct ltn_net_stats fresh = {0};
        bpf_map_update_elem(&host_net, &key, &fresh, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&host_net, &key);
        if (!s) {
            add_to(&p->socket_untold, 1);
        }
    }
    return s;
}

static __always_inline void count_failure(struct ltn_net_stats *s, int result)
{
    if (result == -EAGAIN_NR) {
        add_to(&s->would_block, 1);
    } else if (result < 0) {
        add_to(&s->failed, 1);
    }
}

static __always_inline void note_send(struct sock *sk, int result)
{
    ltn_u32 tgid = (ltn_u32)(bpf_get_current_pid_tgid() >> 32);
    struct ltn_host_process *p = sk && !host_is_down() ? host_of(tgid) : 0;
    if (!p) {
        return;
    }
    ltn_u64 bytes = result > 0 ? (ltn_u64)(ltn_u32)result : 0;
    add_to(&p->socket_calls, 1);
    add_to(&p->socket_sent_bytes, bytes);
    struct ltn_net_stats *s = peer_stats(sk, p, tgid);
    if (s) {
        add_to(&s->sends, 1);
        add_to(&s->sent_bytes, bytes);
        count_failure(s, result);
    }
}

static __always_inline void note_receive(struct sock *sk, int result, int flags)
{
    ltn_u32 tgid = (ltn_u32)(bpf_get_current_pid_tgid() >> 32);
    struct ltn_host_process *p = sk && !host_is_down() ? host_of(tgid) : 0;
    if (!p) {
        return;
    }
    /* What was only looked at will be received again. */
    ltn_u64 bytes = result > 0 && !(flags & FLAG_PEEK) ? (ltn_u64)(ltn_u32)result : 0;
    add_to(&p->socket_calls, 1);
    add_to(&p->socket_received_bytes, bytes);
    struct ltn_net_stats *s = peer_stats(sk, p, tgid);
    if (s) {
        add_to(&s->receives, 1);
        add_to(&s->received_bytes, bytes);
        count_failure(s, result);
    }
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_socket_send, struct sock *sk, int result)
{
    note_send(sk, result);
    return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_socket_receive, struct sock *sk, int result, int flags)
{
    note_receive(sk, result, flags);
    return 0;
}

/* Kernels before 6.3 lack the two tracepoints. The functions below them are called through
 * pointers, so no compiler takes them apart; sockets of the machine itself (unix) stay unseen
 * there. */
#define SENDS(name, function)                                                                      \
    SEC("fexit/" #function)                                                                        \
    int BPF_PROG(name, struct socket *sock, struct msghdr *msg, unsigned long size, int result)    \
    {                                                                                              \
        note_send(sock->sk, result);                                                               \
        return 0;                                                                                  \
    }
#define RECEIVES(name, function)                                                                   \
    SEC("fexit/" #function)                                                                        \
    int BPF_PROG(name, struct socket *sock, struct msghdr *msg, unsigned long size, int flags,     \
                 int result)                                                                       \
    {                                                                                              \
        note_receive(sock->sk, result, flags);                                                     \
        return 0;                                                                                  \
    }

SENDS(on_inet_send, inet_sendmsg)
SENDS(on_inet6_send, inet6_sendmsg)
SENDS(on_unix_send, unix_stream_sendmsg)
SENDS(on_unix_dgram_send, unix_dgram_sendmsg)
RECEIVES(on_inet_receive, inet_recvmsg)
RECEIVES(on_inet6_receive, inet6_recvmsg)
RECEIVES(on_unix_receive, unix_stream_recvmsg)
RECEIVES(on_unix_dgram_receive, unix_dgram_recvmsg)

static __always_inline ltn_u32 owner_of_socket(struct sock *sk, const struct ltn_retransmit_key *k)
{
    ltn_u64 at = (ltn_u64)sk;
    struct ltn_socket_owner *o = bpf_map_lookup_elem(&socket_owners, &at);
    return o && o->local_port == k->local_port && o->peer_port == k->peer_port ? o->tgid : 0;
}

SEC("raw_tp/tcp_retransmit_skb")
int on_retransmit(struct bpf_raw_tracepoint_args *ctx)
{
    struct sock *sk = (struct sock *)((ltn_u64 *)ctx)[0];
    struct ltn_retransmit_key key = {0};
    key.family = BPF_CORE_READ(sk, __sk_common.skc_family);
    key.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
    key.peer_port = host_order(BPF_CORE_READ(sk, __sk_common.skc_dport));
    if (key.family == FAMILY_INET) {
        bpf_core_read(key.local, 4, &sk->__sk_common.skc_rcv_saddr);
        bpf_core_read(key.peer, 4, &sk->__sk_common.skc_daddr);
    } else if (key.family == FAMILY_INET6 && bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
        bpf_core_read(key.local, sizeof(key.local), &sk->__sk_common.skc_v6_rcv_saddr);
        bpf_core_read(key.peer, sizeof(key.peer), &sk->__sk_common.skc_v6_daddr);
    }
    struct ltn_retransmit_stats *s = bpf_map_lookup_elem(&host_retransmits, &key);
    if (!s) {
        struct ltn_retransmit_stats fresh = {.tgid = owner_of_socket(sk, &key)};
        bpf_map_update_elem(&host_retransmits, &key, &fresh, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&host_retransmits, &key);
        if (!s) {
            count_drop(LTN_DROP_MAP_HOST);
            return 0;
        }
    }
    ltn_u32 state = BPF_CORE_READ(sk, __sk_common.skc_state);
    add_to(&s->segments, 1);
    if (state == STATE_SYN_SENT || state == STATE_SYN_RECV || state == STATE_NEW_SYN_RECV) {
        add_to(&s->handshake, 1);
    }
    return 0;
}
