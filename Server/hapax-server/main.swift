import Foundation
import HapaxServer

if #available(macOS 15, *) {
    exit(await HapaxServer.main(arguments: Array(CommandLine.arguments.dropFirst()), environment: ProcessInfo.processInfo.environment))
} else {
    FileHandle.standardError.write(Data("hapax-server: needs macOS 15\n".utf8))
    exit(1)
}
