/* Loaded before a program that listens on every interface and cannot be told not to: whatever it
 * binds to "any address" is bound to loopback instead.
 *
 * Not here: who is run with it (dynamodb_local.rs). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

typedef int (*bind_function)(int, const struct sockaddr *, socklen_t);

int bind(int socket, const struct sockaddr *address, socklen_t length) {
    bind_function real = (bind_function)dlsym(RTLD_NEXT, "bind");
    if (real == NULL) {
        errno = ENOSYS;
        return -1;
    }
    if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in changed;
        memcpy(&changed, address, sizeof changed);
        if (changed.sin_addr.s_addr == htonl(INADDR_ANY)) {
            changed.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            return real(socket, (struct sockaddr *)&changed, sizeof changed);
        }
    }
    if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 changed;
        memcpy(&changed, address, sizeof changed);
        if (IN6_IS_ADDR_UNSPECIFIED(&changed.sin6_addr)) {
            /* 127.0.0.1 as IPv6 writes it: clients ask by IPv4. */
            memset(&changed.sin6_addr, 0, sizeof changed.sin6_addr);
            changed.sin6_addr.s6_addr[10] = 0xff;
            changed.sin6_addr.s6_addr[11] = 0xff;
            changed.sin6_addr.s6_addr[12] = 127;
            changed.sin6_addr.s6_addr[15] = 1;
            return real(socket, (struct sockaddr *)&changed, sizeof changed);
        }
    }
    return real(socket, address, length);
}
