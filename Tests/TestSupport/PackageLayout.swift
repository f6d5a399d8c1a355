import Foundation

/// Where the checkout and what was built from it lie.
package enum PackageLayout {
    package struct NotBuilt: Error, CustomStringConvertible {
        package let description: String
    }

    /// The folder that holds `Package.swift`.
    package static let root = URL(filePath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

    /// The folder the running test binary was built into; the executables of the package lie beside it.
    package static var productsDirectory: URL {
        #if canImport(Darwin)
        if let bundle = Bundle.allBundles.first(where: { $0.bundlePath.hasSuffix(".xctest") }) {
            return bundle.bundleURL.deletingLastPathComponent()
        }
        return Bundle.main.bundleURL
        #else
        let executable = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        return URL(filePath: executable).deletingLastPathComponent()
        #endif
    }

    /// The path of one executable of the package.
    package static func executable(_ name: String) throws -> String {
        let path = productsDirectory.appending(path: name).path
        guard FileManager.default.isExecutableFile(atPath: path) else {
            throw NotBuilt(description: "\(name) has not been built beside the tests")
        }
        return path
    }
}
