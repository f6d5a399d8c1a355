import Foundation
import HapaxModel

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What the process itself takes, under the names that Prometheus' own libraries use.
enum ProcessFigures {
    static func write(to exposition: inout Exposition) {
        var usage = rusage()
        #if canImport(Glibc)
        let whose = __rusage_who_t(RUSAGE_SELF.rawValue)
        #else
        let whose = RUSAGE_SELF
        #endif
        if getrusage(whose, &usage) == 0 {
            let seconds = [usage.ru_utime, usage.ru_stime].map { Double($0.tv_sec) + Double($0.tv_usec) / 1e6 }
            exposition.add(.counter, "process_cpu_seconds_total", "User and system time.", seconds.reduce(0, +))
        }
        // Linux tells these in files; elsewhere they are left out.
        if let pages = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ").dropFirst().first {
            exposition.add(
                .gauge, "process_resident_memory_bytes", "Resident memory.", Double(pages).map { $0 * Double(sysconf(Int32(_SC_PAGESIZE))) }
            )
        }
        if let open = try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
            exposition.add(.gauge, "process_open_fds", "Open descriptors.", open.count)
        }
        exposition.add(.gauge, "process_max_fds", "The most of them.", Descriptors.raise(to: 0))
    }
}
