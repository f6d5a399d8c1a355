import Foundation

/// How much of the machine's processors this process may use.
enum Processors {
    /// At least 1; a control group's quota counts (https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files).
    static let usable: Int = {
        let all = ProcessInfo.processInfo.activeProcessorCount
        guard let text = try? String(contentsOfFile: "/sys/fs/cgroup/cpu.max", encoding: .utf8) else { return all }
        let parts = text.split(whereSeparator: \.isWhitespace).map { Double($0) }
        guard parts.count == 2, let quota = parts[0], let period = parts[1], period > 0 else { return all }
        return max(min(all, Int((quota / period).rounded(.up))), 1)
    }()
}
