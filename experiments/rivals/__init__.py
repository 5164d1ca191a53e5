"""specjax beside other engines that decode the same weights; not part of the installed
package.
"""
