#include <curl/curl.h>
#include <sys/socket.h>

/* curl_easy_setopt and curl_easy_getinfo are variadic, which Swift cannot call: one typed function for each kind of argument. */

typedef size_t (*hapax_curl_data)(char *bytes, size_t size, size_t count, void *context);

static inline CURLcode hapax_curl_set_long(CURL *handle, CURLoption option, long value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode hapax_curl_set_string(CURL *handle, CURLoption option, const char *value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode hapax_curl_set_pointer(CURL *handle, CURLoption option, void *value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode hapax_curl_set_list(CURL *handle, CURLoption option, struct curl_slist *value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode hapax_curl_set_size(CURL *handle, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode hapax_curl_set_data_function(CURL *handle, CURLoption option, hapax_curl_data value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode hapax_curl_response_code(CURL *handle, long *value) {
    return curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, value);
}

/* Whether a connection stood and the request was begun. */
static inline int hapax_curl_was_begun(CURL *handle) {
    double seconds = 0;
    return curl_easy_getinfo(handle, CURLINFO_PRETRANSFER_TIME, &seconds) == CURLE_OK && seconds > 0;
}

/* The result of a finished transfer; CURL_LAST while none has finished. */
static inline CURLcode hapax_curl_finished(CURLM *multi) {
    int left = 0;
    CURLMsg *message = curl_multi_info_read(multi, &left);
    return message && message->msg == CURLMSG_DONE ? message->data.result : CURL_LAST;
}

/* A transfer that ends does not wait for a name to be resolved (libcurl 7.87 and later; older ones may). */
static inline void hapax_curl_quick_exit(CURL *handle) {
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static inline curl_socket_t hapax_curl_open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    (void)context;
    (void)purpose;
    int kind = address->socktype;
#ifdef SOCK_CLOEXEC
    kind |= SOCK_CLOEXEC;
#endif
    return socket(address->family, kind, address->protocol);
}

/* A process that the host starts does not inherit the connection. */
static inline void hapax_curl_close_on_exec(CURL *handle) {
    curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, hapax_curl_open_socket);
}
