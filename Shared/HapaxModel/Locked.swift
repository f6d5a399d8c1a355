#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A value guarded by a lock. `Synchronization.Mutex` would do, but needs iOS 18 and macOS 15.
// Unchecked: every access to `value` is between lock and unlock of `mutex`, and only `withLock`, and who calls `lock`, touches either.
package final class Locked<Value>: @unchecked Sendable {
    /// A pointer: for a stored property Swift would check each access for exclusivity, which the lock ensures already.
    private let value = UnsafeMutablePointer<Value>.allocate(capacity: 1)
    #if canImport(Darwin)
    private let mutex = UnsafeMutablePointer<os_unfair_lock>.allocate(capacity: 1)
    #else
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    #endif

    package init(_ value: sending Value) {
        self.value.initialize(to: value)
        #if canImport(Darwin)
        mutex.initialize(to: os_unfair_lock())
        #else
        mutex.initialize(to: pthread_mutex_t())
        pthread_mutex_init(mutex, nil)
        #endif
    }

    deinit {
        #if !canImport(Darwin)
        pthread_mutex_destroy(mutex)
        #endif
        mutex.deallocate()
        value.deinitialize(count: 1)
        value.deallocate()
    }

    package func withLock<Result, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        lock()
        defer { unlock() }
        return try body(&value.pointee)
    }

    // For what stands in front of each event: a closure that another module is handed is not specialized and costs as much as the lock.

    package func lock() {
        #if canImport(Darwin)
        os_unfair_lock_lock(mutex)
        #else
        pthread_mutex_lock(mutex)
        #endif
    }

    package func unlock() {
        #if canImport(Darwin)
        os_unfair_lock_unlock(mutex)
        #else
        pthread_mutex_unlock(mutex)
        #endif
    }

    /// The value, for who has called ``lock()`` and not yet ``unlock()``.
    package var locked: UnsafeMutablePointer<Value> { value }
}
