import Foundation

/// Runs a program to its end and returns what it wrote.
enum Command {
    struct Failed: Error, CustomStringConvertible {
        let description: String
    }

    /// - Throws: ``Failed`` with its standard error unless it exits with 0.
    @discardableResult
    static func run(_ executable: String, _ arguments: [String], environment: [String: String] = [:]) async throws -> String {
        let child = try ChildProcess(executable, arguments, environment: environment)
        let output = await child.remainingOutput()
        let exit = await child.waitUntilExit()
        guard exit == .exited(0) else {
            throw Failed(description: "\(child.name) ended with \(exit): \(child.standardErrorTail)")
        }
        return output
    }
}
