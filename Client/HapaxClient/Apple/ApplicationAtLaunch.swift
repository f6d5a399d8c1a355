#if HAPAX_APPLE_STUBS
import AppleStubs
import HapaxClient
#elseif canImport(UIKit) && !os(watchOS)
import UIKit
#elseif canImport(AppKit)
import AppKit
#endif

#if HAPAX_APPLE_STUBS || (canImport(UIKit) && !os(watchOS)) || canImport(AppKit)
import Foundation

extension EventClient {
    /// Connects the client with a SwiftUI app: call it in `App.init`, which runs before there is an application. That is attached when it has
    /// launched, as by `attach(_:)`; what has launched already is not.
    public func attach() {
        #if HAPAX_APPLE_STUBS || canImport(UIKit)
        LifecycleNotifications.whenLaunched(UIApplication.didFinishLaunchingNotification) { [weak self] (application: UIApplication) in
            self?.attach(application)
        }
        #endif
        #if HAPAX_APPLE_STUBS || !canImport(UIKit)
        LifecycleNotifications.whenLaunched(NSApplication.didFinishLaunchingNotification) { [weak self] (application: NSApplication) in
            self?.attach(application)
        }
        #endif
    }
}
#endif
