import Foundation

/// A process and its children, as `/proc` tells of them; nothing is known of them on other systems.
struct ProcessTree {
    let root: Int32

    /// CPU time used so far, user and system, in seconds; that of children that have ended counts once their parent has waited for them.
    var cpuSeconds: Double { Self.seconds(processes.map { $0[11...14] }) }

    /// The same of the root alone, without children.
    var rootSeconds: Double { Self.seconds(processes.filter { $0[1] != "\(root)" }.map { $0[11...12] }) }

    private static func seconds(_ ticks: [ArraySlice<Substring>]) -> Double {
        ticks.joined().reduce(0) { $0 + (Double($1) ?? 0) } / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    var residentMebibytes: Double {
        processes.reduce(0.0) { $0 + (Double($1[21]) ?? 0) } * Double(sysconf(Int32(_SC_PAGESIZE))) / 1_048_576
    }

    /// The most that the root itself has taken so far.
    var peakMebibytes: Double {
        let status = (try? String(contentsOfFile: "/proc/\(root)/status", encoding: .utf8)) ?? ""
        return status.firstMatch(of: /VmHWM:\s+(\d+) kB/).flatMap { Double($0.1) }.map { $0 / 1_024 } ?? .nan
    }

    /// The fields of `/proc/N/stat` behind the program's name, from the state on (proc(5) counts it as the third), of root and children.
    private var processes: [[Substring]] {
        let numbers = ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { Int32($0) }
        return numbers.compactMap { number in
            guard let stat = try? String(contentsOfFile: "/proc/\(number)/stat", encoding: .utf8),
                let fields = stat.split(separator: ")").last?.split(separator: " "), fields.count > 21,
                number == root || fields[1] == "\(root)"
            else { return nil }
            return fields
        }
    }
}

/// What a load is sent to.
protocol LoadTarget {
    var port: Int { get }
    var processIdentifier: Int32 { get }
}

extension LoadTarget {
    var cpuSeconds: Double { ProcessTree(root: processIdentifier).cpuSeconds }
    var residentMebibytes: Double { ProcessTree(root: processIdentifier).residentMebibytes }
    var peakMebibytes: Double { ProcessTree(root: processIdentifier).peakMebibytes }
}
