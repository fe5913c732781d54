// SPDX-License-Identifier: Apache-2.0
// simctl: starts and stops faults while a simulated job runs.
#include "fault.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char g_usage[] =
    "usage: simctl [--dir D] COMMAND\n"
    "  fault start cpu --rank R --core C [--comm NAME] [--threads N] [--nice N]   a process that "
    "spins on "
    "that core\n"
    "  fault start dataloader --rank R --ms F            each batch takes F ms longer\n"
    "  fault start gpu --rank R --factor F               kernels take F times as long, the clock "
    "drops\n"
    "  fault start hang --rank R                         the rank enters no further collective\n"
    "  fault stop NAME --rank R\n"
    "  pcie --rank R --width N                           PCIe width of the rank's device, copies "
    "slow down\n"
    "  status | clean\n";

static int status(struct sim_shm *shm)
{
    printf("{\"ranks\":[");
    const char *comma = "";
    for (int i = 0; i < SIM_MAX_RANKS; i++) {
        struct sim_rank *r = &shm->ranks[i];
        int pid = atomic_load(&r->pid);
        if (pid == 0)
            continue;
        printf("%s\n{\"rank\":%d,\"pid\":%d,\"alive\":%s,\"node\":\"%s\",\"device\":%d,\"steps\":%"
               "llu,\"faults\":[",
               comma, i, pid, sim_alive(pid, 0) ? "true" : "false", shm->nodes[r->node].name,
               r->device, (unsigned long long)atomic_load(&r->steps));
        comma = "";
        for (int k = 0; k < SIM_FAULT_KINDS; k++) {
            if (atomic_load(&r->fault_since_unix_ns[k]) == 0)
                continue;
            printf("%s\"%s\"", comma, sim_fault_name((enum sim_fault_kind)k));
            comma = ",";
        }
        printf("]}");
        comma = ",";
    }
    printf("]}\n");
    return 0;
}

static int clean(struct sim_shm *shm, const char *dir)
{
    for (int i = 0; i < SIM_MAX_RANKS; i++) {
        for (int k = 0; k < SIM_FAULT_KINDS; k++) {
            struct sim_fault f = {.kind = (enum sim_fault_kind)k, .rank = i, .comm = "logrotate"};
            if (atomic_load(&shm->ranks[i].fault_since_unix_ns[k]) != 0)
                sim_fault_stop(shm, dir, &f);
        }
        if (!sim_alive(atomic_load(&shm->ranks[i].pid), 0))
            atomic_store(&shm->ranks[i].pid, 0);
    }
    return 0;
}

static int pcie(struct sim_shm *shm, int rank, int width)
{
    struct sim_rank *r = &shm->ranks[rank];
    if (atomic_load(&r->pid) == 0 || width < 1 || width > 16)
        return -EINVAL;
    struct sim_dev *dev = &shm->nodes[r->node].dev[r->device];
    atomic_store(&dev->pcie_width, (uint32_t)width);
    atomic_store(&dev->copy_permille, 16000u / (uint32_t)width);
    return 0;
}

static int fault_command(struct sim_shm *shm, const char *dir, char **words, int n,
                         struct sim_fault *f)
{
    int kind = n == 3 ? sim_fault_kind_of(words[2]) : -1;
    if (kind < 0 || f->rank < 0 || f->rank >= SIM_MAX_RANKS)
        return -EINVAL;
    f->kind = (enum sim_fault_kind)kind;
    if (strcmp(words[1], "stop") == 0)
        return sim_fault_stop(shm, dir, f);
    int pid = 0;
    int rc = strcmp(words[1], "start") == 0 ? sim_fault_start(shm, dir, f, &pid) : -EINVAL;
    if (rc == 0 && pid > 0)
        printf("%d\n", pid);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"dir", required_argument, NULL, 'd'},
        {"rank", required_argument, NULL, 'r'},
        {"core", required_argument, NULL, 'c'},
        {"comm", required_argument, NULL, 'n'},
        {"ms", required_argument, NULL, 'm'},
        {"factor", required_argument, NULL, 'f'},
        {"width", required_argument, NULL, 'w'},
        {"threads", required_argument, NULL, 't'},
        {"nice", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct sim_fault f = {.rank = -1, .comm = "logrotate", .nice = -5, .ms = 20, .factor = 1.4};
    int c, width = 16, rc = -EINVAL;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'd':
            setenv("SIMGPU_DIR", optarg, 1);
            break;
        case 'r':
            f.rank = (int)strtol(optarg, NULL, 10);
            break;
        case 'c':
            f.core = (int)strtol(optarg, NULL, 10);
            break;
        case 'n':
            snprintf(f.comm, sizeof(f.comm), "%.15s", optarg);
            break;
        case 'm':
            f.ms = strtod(optarg, NULL);
            break;
        case 'f':
            f.factor = strtod(optarg, NULL);
            break;
        case 'p':
            f.nice = (int)strtol(optarg, NULL, 10);
            break;
        case 't':
            f.threads = (int)strtol(optarg, NULL, 10);
            break;
        case 'w':
            width = (int)strtol(optarg, NULL, 10);
            break;
        default:
            fputs(g_usage, c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    char dir[400];
    char **words = argv + optind;
    int n = argc - optind;
    struct sim_shm *shm = n > 0 && sim_dir(dir, sizeof(dir)) == 0 ? sim_shm_get() : NULL;
    if (n == 0 || shm == NULL) {
        fputs(g_usage, stderr);
        return 2;
    }
    if (strcmp(words[0], "fault") == 0)
        rc = fault_command(shm, dir, words, n, &f);
    else if (strcmp(words[0], "status") == 0)
        rc = status(shm);
    else if (strcmp(words[0], "clean") == 0)
        rc = clean(shm, dir);
    else if (strcmp(words[0], "pcie") == 0 && f.rank >= 0 && f.rank < SIM_MAX_RANKS)
        rc = pcie(shm, f.rank, width);
    if (rc != 0)
        fprintf(stderr, "simctl: %s\n",
                rc == -EINVAL ? "bad arguments, see --help" : strerror(-rc));
    return rc == 0 ? 0 : 1;
}
